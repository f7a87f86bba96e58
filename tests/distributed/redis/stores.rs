//! The contract, over Redis.

use std::sync::Arc;

use perkey::distributed::Store;

#[cfg(unix)]
use crate::children::Shared;
use crate::contract::{Place, contract};
use crate::redis_server::RedisServer;

impl Place for RedisServer {
    fn new(_: &str) -> Self {
        Self::start()
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::new(RedisServer::store(self))
    }
}

#[cfg(unix)]
impl Shared for RedisServer {
    fn address(&self) -> String {
        self.url()
    }
}

contract!(RedisServer);
