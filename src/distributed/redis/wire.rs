//! One connection to the server.

use std::time::{Duration, Instant};

use redis::{Cmd, Connection, ConnectionLike, RedisResult, Value};

use crate::distributed::error::StoreError;

use super::address::Address;
use super::fault::{self, Effect};

/// A connection. Whatever fails on it, it is dropped then: so a reply that comes late is never taken for that of the next request.
pub(super) struct Wire {
    connection: Connection,
}

/// A reply.
pub(super) struct Reply {
    /// Just before the request was sent.
    pub(super) asked: Instant,
    pub(super) value: Value,
}

impl Wire {
    /// Connects, and says who it is.
    pub(super) fn connect(address: &Address, until: Instant) -> Result<Self, StoreError> {
        // A host can have several addresses, which are tried one after the other.
        let connection = address.client().get_connection_with_timeout(time_left(until) / 2);
        let mut wire = Self { connection: connection.map_err(fault::of_connecting)? };
        if let Some(login) = address.login() {
            wire.greet(&login, until, fault::of_login)?;
        }
        if let Some(select) = address.select() {
            wire.greet(&select, until, fault::of_refusal)?;
        }
        wire.greet(&redis::cmd("PING"), until, fault::of_refusal)?;
        Ok(wire)
    }

    /// Sends a request, and waits for the reply, which can be that the server refuses it.
    pub(super) fn ask(&mut self, request: &Cmd, effect: Effect, until: Instant) -> Result<Reply, StoreError> {
        let bytes = request.get_packed_command();
        self.limit(until).map_err(fault::of_sending)?;
        let asked = Instant::now();
        self.connection.send_packed_command(&bytes).map_err(fault::of_sending)?;
        let received = self.limit(until).and_then(|()| self.connection.recv_response());
        let value = received.map_err(|error| fault::of_receiving(error, effect, asked.elapsed()))?;
        Ok(Reply { asked, value })
    }

    /// Whether the server answers.
    pub(super) fn answers(&mut self, until: Instant) -> bool {
        self.ask(&redis::cmd("PING"), Effect::Looks, until).is_ok()
    }

    pub(super) fn is_open(&self) -> bool {
        self.connection.is_open()
    }

    pub(super) fn into_connection(self) -> Connection {
        self.connection
    }

    /// One step of connecting: nothing is lost if it fails.
    fn greet(
        &mut self,
        request: &Cmd,
        until: Instant,
        refusal: impl Fn(&str, Option<&str>) -> StoreError,
    ) -> Result<(), StoreError> {
        self.limit(until).map_err(fault::of_connecting)?;
        let sent = self.connection.send_packed_command(&request.get_packed_command());
        let reply = sent.and_then(|()| self.limit(until)).and_then(|()| self.connection.recv_response());
        match reply.map_err(fault::of_connecting)? {
            // Who must not ask for this is connected all the same.
            Value::ServerError(error) if error.code() == "NOPERM" => Ok(()),
            Value::ServerError(error) => Err(refusal(error.code(), error.details())),
            _ => Ok(()),
        }
    }

    fn limit(&self, until: Instant) -> RedisResult<()> {
        let left = Some(time_left(until));
        self.connection.set_write_timeout(left)?;
        self.connection.set_read_timeout(left)
    }
}

/// At least a moment: no time at all would be for ever.
fn time_left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}
