//! The contract, over the store in memory.

use std::sync::Arc;
use std::time::Duration;

use perkey::distributed::{MemoryStore, Store};

use crate::contract::{Place, contract};

struct Memory(MemoryStore);

impl Place for Memory {
    fn new(_: &str) -> Self {
        Self(MemoryStore::new())
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.0.clone())
    }

    /// Its clock can be moved; its users' cannot.
    fn let_pass(&self, time: Duration) {
        self.0.advance(time);
    }
}

contract!(Memory);
