//! The contract, over etcd.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use perkey::distributed::Store;

#[cfg(unix)]
use crate::children::Shared;
use crate::contract::{Place, contract};
use crate::etcd_server::Etcd;

impl Place for Etcd {
    /// It counts whole seconds.
    const TTL: Duration = Duration::from_secs(1);

    fn new(_: &str) -> Self {
        Self::start()
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::new(Etcd::store(self))
    }

    /// It ends leases up to a second late.
    fn let_pass(&self, time: Duration) {
        thread::sleep(time + Duration::from_secs(1));
    }
}

#[cfg(unix)]
impl Shared for Etcd {
    fn address(&self) -> String {
        self.url()
    }
}

contract!(Etcd);
