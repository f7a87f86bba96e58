//! Hears when something is released.
//!
//! One session per store, while somebody waits and a while longer. It is only a hint: who waits also looks by itself now and then, so
//! a message that is lost costs one such look.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_postgres::Client;

use crate::distributed::error::StoreError;
use crate::distributed::patience::{Backoff, Waker};
use crate::distributed::random::random;
use crate::sync::Mutex;

use super::address::Address;
use super::engine::Engine;
use super::wire::Wire;
use super::{fault, numbers};

pub(super) struct Listener {
    address: Arc<Address>,
    state: Mutex<State>,
    /// There is something new to listen to, or the connection is gone.
    bell: Notify,
}

#[derive(Default)]
struct State {
    channels: HashMap<i64, Channel>,
    numbers: u64,
    /// There is a task.
    runs: bool,
}

struct Channel {
    is_heard: bool,
    waiting: Vec<(u64, Waker)>,
    /// Of so many messages one wakes somebody.
    rarity: u64,
    woke: Instant,
}

impl Default for Channel {
    fn default() -> Self {
        Self { is_heard: false, waiting: Vec::new(), rarity: 1, woke: Instant::now() }
    }
}

/// One who waits. Until it is dropped.
pub(super) struct Waiting<'a> {
    listener: &'a Listener,
    channel: i64,
    number: u64,
}

/// After so long without a message the task sees whether anybody waits still, and whether the connection works.
const QUIET: Duration = Duration::from_secs(10);
/// How long the server may take to answer.
const ANSWER: Duration = Duration::from_secs(3);
/// Where many wait, one message in so many wakes somebody of this store.
const RAREST: u64 = 32;
/// Each such time without a wake makes them half as rare.
const CALM: Duration = Duration::from_secs(1);

impl Listener {
    pub(super) fn new(address: Arc<Address>) -> Self {
        Self { address, state: Mutex::default(), bell: Notify::new() }
    }

    /// Wakes who waits when it may be worthwhile to look: first when the channel is heard.
    pub(super) fn wait(self: &Arc<Self>, engine: &Engine, channel: i64, waker: Waker) -> Waiting<'_> {
        let mut state = self.state.lock();
        let number = state.numbers;
        state.numbers += 1;
        let known = state.channels.entry(channel).or_default();
        if known.is_heard {
            // It may have been released meanwhile.
            waker.wake();
        }
        known.waiting.push((number, waker));
        if !state.runs {
            // If there is none, who waits looks by itself.
            state.runs = engine.spawn(Arc::clone(self).run()).is_ok();
        }
        drop(state);
        self.bell.notify_one();
        Waiting { listener: self, channel, number }
    }

    async fn run(self: Arc<Self>) {
        let mut backoff = reconnecting();
        loop {
            let hearing = Arc::clone(&self);
            let hear = move |message: tokio_postgres::Notification| hearing.hear(message.channel());
            if let Ok(Ok((wire, task))) = timeout(ANSWER, Wire::connect(&self.address, hear)).await {
                let ended = Arc::clone(&self);
                tokio::spawn(async move {
                    let _ = task.await;
                    ended.bell.notify_one();
                });
                // If it fails, the next connection may do better.
                let _ = self.listen(wire.client(), &mut backoff).await;
            }
            {
                let mut state = self.state.lock();
                state.channels.retain(|_, channel| !channel.waiting.is_empty());
                state.channels.values_mut().for_each(|channel| channel.is_heard = false);
                if state.channels.is_empty() {
                    state.runs = false;
                    return;
                }
            }
            sleep(backoff.pause()).await;
        }
    }

    /// Listens until nobody waits any more, or the connection fails.
    async fn listen(&self, client: &Client, backoff: &mut Backoff) -> Result<(), StoreError> {
        loop {
            self.follow(client).await?;
            *backoff = reconnecting();
            let mut bell = pin!(self.bell.notified());
            if timeout(QUIET, &mut bell).await.is_err() {
                if self.state.lock().channels.values().all(|channel| channel.waiting.is_empty()) {
                    return Ok(());
                }
                run(client, "SELECT 1").await?;
            }
            if client.is_closed() {
                return Ok(());
            }
        }
    }

    /// Listens to what somebody waits for, and to nothing else.
    async fn follow(&self, client: &Client) -> Result<(), StoreError> {
        loop {
            let (new, old) = self.changes();
            if new.is_empty() && old.is_empty() {
                return Ok(());
            }
            for number in new {
                run(client, &format!("LISTEN {}", numbers::channel(number))).await?;
                let mut state = self.state.lock();
                // If nobody waits any more, the next round ends it.
                let channel = state.channels.entry(number).or_default();
                channel.is_heard = true;
                channel.waiting.iter().for_each(|(_, waker)| waker.wake());
            }
            for number in old {
                run(client, &format!("UNLISTEN {}", numbers::channel(number))).await?;
                // Who came meanwhile is served in the next round.
                if let Some(channel) = self.state.lock().channels.get_mut(&number) {
                    channel.is_heard = false;
                }
            }
        }
    }

    /// The channels that are not heard and should be, and the other way round.
    fn changes(&self) -> (Vec<i64>, Vec<i64>) {
        let mut state = self.state.lock();
        state.channels.retain(|_, channel| channel.is_heard || !channel.waiting.is_empty());
        let wrong = state.channels.iter().filter(|(_, channel)| channel.is_heard == channel.waiting.is_empty());
        let (old, new): (Vec<_>, Vec<_>) = wrong.partition(|(_, channel)| channel.is_heard);
        let numbers = |channels: Vec<(&i64, &Channel)>| channels.into_iter().map(|(number, _)| *number).collect();
        (numbers(new), numbers(old))
    }

    /// Something was released. All who listen hear it, and one of them can have it: who comes in vain comes more rarely.
    fn hear(&self, channel: &str) {
        let mut state = self.state.lock();
        let channel = numbers::parse_channel(channel).and_then(|number| state.channels.get_mut(&number));
        let Some(channel) = channel.filter(|channel| !channel.waiting.is_empty()) else { return };
        let calm = channel.woke.elapsed().as_millis() / CALM.as_millis();
        channel.rarity = (channel.rarity >> calm.min(63)).max(1);
        if !random().is_multiple_of(channel.rarity) {
            return;
        }
        channel.rarity = (channel.rarity * 2).min(RAREST);
        channel.woke = Instant::now();
        let chosen = random() as usize % channel.waiting.len();
        channel.waiting[chosen].1.wake();
    }
}

impl Waiting<'_> {
    /// It has not come in vain.
    pub(super) fn is_granted(&self) {
        if let Some(channel) = self.listener.state.lock().channels.get_mut(&self.channel) {
            channel.rarity = 1;
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.listener.state.lock();
        let Some(channel) = state.channels.get_mut(&self.channel) else { return };
        channel.waiting.retain(|(number, _)| *number != self.number);
        // What is heard is left to the task: the next to wait may come before it ends that.
        if channel.waiting.is_empty() && !channel.is_heard {
            state.channels.remove(&self.channel);
        }
    }
}

async fn run(client: &Client, statement: &str) -> Result<(), StoreError> {
    match timeout(ANSWER, client.batch_execute(statement)).await {
        Ok(done) => done.map_err(fault::of_request),
        Err(_) => Err(fault::of_silence()),
    }
}

fn reconnecting() -> Backoff {
    Backoff::new(Duration::from_millis(100), Duration::from_secs(5))
}
