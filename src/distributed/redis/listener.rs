//! Hears when something is released.
//!
//! One thread per store, with one connection, while somebody waits and a while longer. It is only a hint: who waits also looks by
//! itself now and then, so a message that is lost costs one such look.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use redis::{Msg, PubSub, RedisResult, Value};

use crate::distributed::patience::{Backoff, Waker};
use crate::distributed::random::random;

use super::address::Address;
use super::wire::Wire;
use crate::sync::Mutex;

pub(super) struct Listener {
    address: Arc<Address>,
    /// Where the thread is told that there is something new to listen to.
    bell: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    channels: HashMap<String, Channel>,
    numbers: u64,
    /// There is a thread.
    runs: bool,
    /// It hears the bell.
    hears: bool,
}

#[derive(Default)]
struct Channel {
    is_heard: bool,
    waiting: Vec<(u64, Waker)>,
}

/// One who waits. Until it is dropped.
pub(super) struct Waiting<'a> {
    listener: &'a Listener,
    channel: String,
    number: u64,
}

/// After so long without a message the thread sees whether anybody waits still, and whether the connection works.
const QUIET: Duration = Duration::from_secs(10);
/// How long the server may take to answer.
const ANSWER: Duration = Duration::from_secs(2);
/// Of those who wait for a key about so many try when it is released. The others look by themselves, in time.
const CHOSEN: u64 = 4;

impl Listener {
    pub(super) fn new(address: Arc<Address>) -> Self {
        let bell = format!("perkey:listener:{:016x}{:016x}", random(), random());
        Self { address, bell, state: Mutex::default() }
    }

    /// Wakes who waits when it may be worthwhile to look: first when the channel is heard. If the second is true, the bell has to be rung.
    pub(super) fn wait(self: &Arc<Self>, channel: &str, waker: Waker) -> (Waiting<'_>, bool) {
        let mut state = self.state.lock();
        let number = state.numbers;
        state.numbers += 1;
        let known = state.channels.entry(channel.to_owned()).or_default();
        if known.is_heard {
            // It may have been released meanwhile.
            waker.wake();
        }
        known.waiting.push((number, waker));
        let is_news = !known.is_heard && known.waiting.len() == 1;
        let has_to_be_rung = is_news && state.hears;
        if !state.runs {
            let own = Arc::clone(self);
            let thread = thread::Builder::new().name("perkey-redis".to_owned()).spawn(move || own.run());
            // Without a thread who waits looks by itself.
            state.runs = thread.is_ok();
        }
        drop(state);
        (Waiting { listener: self, channel: channel.to_owned(), number }, has_to_be_rung)
    }

    pub(super) fn bell(&self) -> &str {
        &self.bell
    }

    fn run(&self) {
        let mut backoff = reconnecting();
        loop {
            if let Ok(wire) = Wire::connect(&self.address, Instant::now() + ANSWER) {
                let mut connection = wire.into_connection();
                let mut messages = connection.as_pubsub();
                // If it fails, the next connection may do better.
                let _ = self.listen(&mut messages, &mut backoff);
                // Dropping it says goodbye to the server, and must not wait long for the answer.
                let _ = messages.set_read_timeout(Some(Duration::from_millis(100)));
            }
            let mut state = self.state.lock();
            state.hears = false;
            state.channels.retain(|_, channel| !channel.waiting.is_empty());
            state.channels.values_mut().for_each(|channel| channel.is_heard = false);
            if state.channels.is_empty() {
                state.runs = false;
                return;
            }
            drop(state);
            thread::sleep(backoff.pause());
        }
    }

    /// Listens until nobody waits any more, or the connection fails.
    fn listen(&self, messages: &mut PubSub<'_>, backoff: &mut Backoff) -> RedisResult<()> {
        messages.set_read_timeout(Some(ANSWER))?;
        messages.subscribe(&self.bell)?;
        self.state.lock().hears = true;
        *backoff = reconnecting();
        loop {
            messages.set_read_timeout(Some(ANSWER))?;
            self.follow(messages)?;
            messages.set_read_timeout(Some(QUIET))?;
            match messages.get_message() {
                Ok(message) => self.hear(&message),
                Err(error) if error.is_timeout() => {
                    if self.state.lock().channels.values().all(|channel| channel.waiting.is_empty()) {
                        return Ok(());
                    }
                    messages.set_read_timeout(Some(ANSWER))?;
                    messages.ping::<Value>()?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Listens to what somebody waits for, and to nothing else.
    fn follow(&self, messages: &mut PubSub<'_>) -> RedisResult<()> {
        loop {
            let (new, old) = self.changes();
            if new.is_empty() && old.is_empty() {
                return Ok(());
            }
            for name in new {
                messages.subscribe(&name)?;
                let mut state = self.state.lock();
                // If nobody waits any more, the next round ends it.
                let channel = state.channels.entry(name).or_default();
                channel.is_heard = true;
                channel.waiting.iter().for_each(|(_, waker)| waker.wake());
            }
            for name in old {
                messages.unsubscribe(&name)?;
                // Who came meanwhile is served in the next round.
                if let Some(channel) = self.state.lock().channels.get_mut(&name) {
                    channel.is_heard = false;
                }
            }
        }
    }

    /// The channels that are not heard and should be, and the other way round.
    fn changes(&self) -> (Vec<String>, Vec<String>) {
        let mut state = self.state.lock();
        state.channels.retain(|_, channel| channel.is_heard || !channel.waiting.is_empty());
        let wrong = state.channels.iter().filter(|(_, channel)| channel.is_heard == channel.waiting.is_empty());
        let (old, new): (Vec<_>, Vec<_>) = wrong.partition(|(_, channel)| channel.is_heard);
        let names = |channels: Vec<(&String, &Channel)>| channels.into_iter().map(|(name, _)| name.clone()).collect();
        (names(new), names(old))
    }

    /// Something was released; the message says how many stores listen.
    fn hear(&self, message: &Msg) {
        let listeners = message.get_payload::<u64>().unwrap_or(1).max(1);
        if random() % listeners >= CHOSEN {
            return;
        }
        let state = self.state.lock();
        let Some(channel) =
            state.channels.get(message.get_channel_name()).filter(|channel| !channel.waiting.is_empty())
        else {
            return;
        };
        let waiting = &channel.waiting;
        let first = random() as usize % waiting.len();
        let chosen = waiting.iter().cycle().skip(first).take(waiting.len().min(CHOSEN as usize));
        chosen.for_each(|(_, waker)| waker.wake());
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.listener.state.lock();
        let Some(channel) = state.channels.get_mut(&self.channel) else { return };
        channel.waiting.retain(|(number, _)| *number != self.number);
        // What is heard is left to the thread: the next to wait may come before it ends that.
        if channel.waiting.is_empty() && !channel.is_heard {
            state.channels.remove(&self.channel);
        }
    }
}

fn reconnecting() -> Backoff {
    Backoff::new(Duration::from_millis(100), Duration::from_secs(5))
}
