//! Connections that wait for the next request.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, FromRedisValue, Value, from_redis_value};

use crate::distributed::error::{StoreError, StoreErrorKind};

use super::address::Address;
use super::fault::{self, Effect};
use super::wire::{Reply, Wire};
use crate::sync::Mutex;

/// Requests of several threads go over several connections, so that none waits for the reply of another. Some are kept for the next.
pub(super) struct Pool {
    address: Arc<Address>,
    /// The last one was used last.
    idle: Mutex<Vec<Idle>>,
}

struct Idle {
    wire: Wire,
    since: Instant,
}

/// So many are kept.
const KEPT: usize = 8;
/// Not for longer than this.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// For so long it is believed that a connection still works. Then it is tried first: a request that is lost with it has an outcome that
/// nobody knows.
const FRESH_FOR: Duration = Duration::from_secs(1);

impl Pool {
    pub(super) fn new(address: Arc<Address>) -> Self {
        Self { address, idle: Mutex::default() }
    }

    /// The reply to a request, and when that was sent.
    pub(super) fn ask<T: FromRedisValue>(
        &self,
        request: &Cmd,
        effect: Effect,
        until: Instant,
    ) -> Result<(T, Instant), StoreError> {
        let mut wire = self.take(until)?;
        // If this connection is broken, so are others.
        let Reply { asked, value } = wire.ask(request, effect, until).inspect_err(|_| self.drop_idle())?;
        if let Value::ServerError(refusal) = value {
            let error = fault::of_refusal(refusal.code(), refusal.details());
            // The next connection may lead to the server that has taken over.
            if error.kind() == StoreErrorKind::Permanent {
                self.keep(wire)
            } else {
                self.drop_idle()
            }
            return Err(error);
        }
        let value = from_redis_value(value).map_err(|_| fault::of_reply(effect))?;
        self.keep(wire);
        Ok((value, asked))
    }

    fn take(&self, until: Instant) -> Result<Wire, StoreError> {
        let last = self.idle.lock().pop();
        if let Some(Idle { mut wire, since }) = last {
            let now = Instant::now();
            let idle_for = now - since;
            let half = now + until.saturating_duration_since(now) / 2;
            if idle_for < FRESH_FOR || (idle_for < KEPT_FOR && wire.answers(half)) {
                return Ok(wire);
            }
            // The others were used before it.
            self.drop_idle();
        }
        Wire::connect(&self.address, until)
    }

    fn keep(&self, wire: Wire) {
        let mut idle = self.idle.lock();
        if idle.len() < KEPT && wire.is_open() {
            idle.push(Idle { wire, since: Instant::now() });
        }
    }

    fn drop_idle(&self) {
        let idle = std::mem::take(&mut *self.idle.lock());
        drop(idle);
    }
}
