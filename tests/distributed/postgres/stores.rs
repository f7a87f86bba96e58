//! The contract, over PostgreSQL.

use std::sync::Arc;

use perkey::distributed::Store;

use crate::children::Shared;
use crate::contract::{Place, contract};
use crate::postgres_server::Database;

impl Place for Database {
    fn new(_: &str) -> Self {
        Self::create()
    }

    fn store(&self) -> Arc<dyn Store> {
        self.shared_store()
    }
}

impl Shared for Database {
    fn address(&self) -> String {
        self.url()
    }
}

contract!(Database);
