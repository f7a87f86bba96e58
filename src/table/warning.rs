//! What a wait tells that goes on for long.
//!
//! It is gathered under the lock, and told with none held: a subscriber is the user's code. The request keeps its place
//! meanwhile, so a subscriber that panics unwinds out of the wait, which gives up.

use std::cell::Cell;
use std::fmt;
use std::time::Instant;

use super::waiting::{OneWait, Waiting};
use super::{Hold, SLOT_STAYS, Seat, Table};
use crate::content::Content;
use crate::gate::{Gate, Gates};
use crate::mode::Mode;
use crate::owners::tracked::Party;
use crate::report::About;
use crate::slot::Ticket;
use crate::status::{Called, HolderStatus, Taken, WaiterStatus};
use crate::sync::{now, thread_local};
use crate::unwind::alone;
use crate::warning::Due;

/// What is in the way of a wait.
pub(super) struct Obstacle<'a> {
    about: &'a About,
    awaited: &'static str,
    /// How many wait for the same.
    waiting: usize,
    held: Extent,
    /// Where owners are tracked.
    holders: Option<Oldest>,
}

/// How much is held.
enum Extent {
    Key(Taken),
    EveryKey {
        held: Option<(Mode, u64)>,
        /// In front of a keyed request.
        first: Option<WaiterStatus>,
        /// In the way of all keys.
        intents: u64,
    },
}

/// The oldest holds, and how many more there are.
#[derive(Default)]
struct Oldest {
    holders: Vec<HolderStatus>,
    more: usize,
}

impl Oldest {
    const SHOWN: usize = 16;

    fn add(&mut self, party: &Party) {
        if self.holders.len() == Self::SHOWN {
            self.more += 1;
            if self.holders.last().is_some_and(|last| last.since <= party.since) {
                return;
            }
            self.holders.pop();
        }
        let place = self.holders.partition_point(|holder| holder.since <= party.since);
        self.holders.insert(place, party.status());
    }
}

impl<K, S, C: Content> Table<K, S, C> {
    /// What is in the way of a request in the queue of its key, if it is to warn.
    pub(super) fn obstacle_in_queue(&self, hold: &Hold<C>, ticket: Ticket, due: Due) -> Option<Obstacle<'_>> {
        let index = self.map.determine_shard(hold.hash as usize);
        let mut shard = self.map.shards()[index].write();
        let (_, entry) = shard.get_mut(hold.hash, |(stored, _)| stored.id == hold.id).expect(SLOT_STAYS);
        let slot = &mut entry.get_mut().slot;
        if !slot.may_warn(ticket, due) {
            return None;
        }
        let holders = self.tracking.as_ref().map(|tracking| {
            let mut oldest = Oldest::default();
            tracking.read(index, hold.id, |node| node.holders.values().for_each(|party| oldest.add(party)));
            oldest
        });
        Some(Obstacle {
            about: &self.about,
            awaited: "a key",
            waiting: slot.waiters(),
            held: Extent::Key(Taken { held: slot.taken() as usize, limit: slot.limit() as usize }),
            holders,
        })
    }

    /// What is in the way of a request that is kept out, if it is to warn.
    pub(super) fn obstacle_at_gate(
        &self,
        gates: &Gates<K, Seat>,
        (mode, number): (Mode, i64),
        due: Due,
    ) -> Option<Obstacle<'_>> {
        let mut gate = gates.gate.lock();
        if !gate.is_kept_out(mode, number) || !gate.warned.gives_way_to(due) {
            return None;
        }
        let first = gate.first_waiter().map(|(mode, seat)| seat.status(mode.weight()));
        let held = Extent::EveryKey { held: gate.held(), first, intents: 0 };
        let holders = self.holders_of_all(mode);
        Some(self.obstacle_of_gate(&gate, "a key, behind a lock over every key", held, holders))
    }

    /// What is in the way of a request for every key, if it is to warn.
    pub(super) fn obstacle_to_all(
        &self,
        gates: &Gates<K, Seat>,
        (mode, place): (Mode, i64),
        due: Due,
    ) -> Option<Obstacle<'_>> {
        let mut gate = gates.gate.lock();
        if !gate.waits(mode, place) || !gate.warned.gives_way_to(due) {
            return None;
        }
        let held = Extent::EveryKey { held: gate.held(), first: None, intents: gate.intents_in_the_way(mode) };
        let holders = self.holders_of_all(mode);
        let mut obstacle = self.obstacle_of_gate(&gate, "every key", held, holders);
        drop(gate);
        // There may be many, and each shard's are of another moment anyway.
        if let (Some(tracking), Some(oldest)) = (&self.tracking, &mut obstacle.holders) {
            let is_in_the_way = |party: &&Party| Mode::of_weight(party.permits).conflicts(mode);
            tracking.for_each(|_, _, node| {
                node.holders.values().filter(is_in_the_way).for_each(|party| oldest.add(party));
            });
        }
        Some(obstacle)
    }

    fn obstacle_of_gate(
        &self,
        gate: &Gate<K, Seat>,
        awaited: &'static str,
        held: Extent,
        holders: Option<Oldest>,
    ) -> Obstacle<'_> {
        Obstacle { about: &self.about, awaited, waiting: gate.all_waiters(), held, holders }
    }

    /// Who holds all keys in a way that conflicts with `mode`. Under the gate's mutex.
    fn holders_of_all(&self, mode: Mode) -> Option<Oldest> {
        let tracking = self.tracking.as_ref()?;
        let mut oldest = Oldest::default();
        tracking.read_all(|all| {
            let in_the_way = all.held.iter().filter(|(held, _)| held.conflicts(mode));
            in_the_way.for_each(|(_, party)| oldest.add(party));
        });
        Some(oldest)
    }
}

thread_local! {
    // Whether this thread calls a subscriber: of what that waits for it is not told, and so on without end.
    static WARNS: Cell<bool> = const { Cell::new(false) };
}

fn set_warns(warns: bool) -> bool {
    WARNS.try_with(|own| own.replace(warns)).unwrap_or(false)
}

/// Once the time has come that [`OneWait::wakes_by`] said: whether that was not the end of the wait, but a time at which it
/// warns if it is to, and has.
pub(super) fn woke_to_warn(waiting: &(impl Waiting + ?Sized), deadline: Option<Instant>) -> bool {
    let schedule = &waiting.one_wait().schedule;
    let Some(woken_by) = schedule.get().and_then(|schedule| schedule.next()) else { return false };
    let now = now();
    if deadline.is_some_and(|deadline| deadline <= woken_by.max(now)) {
        return false;
    }
    let (due, rest) = schedule.get().map(|schedule| schedule.at(now)).unwrap_or_default();
    schedule.set(rest);
    if let Some(due) = due {
        warn(waiting, due);
    }
    true
}

/// Warns of a wait that is due, if it is the one to do so and anybody listens. With no lock held.
fn warn(waiting: &(impl Waiting + ?Sized), due: Due) {
    struct Ends;
    impl Drop for Ends {
        fn drop(&mut self) {
            set_warns(false);
        }
    }

    if set_warns(true) {
        return;
    }
    let _ends = Ends;
    alone(|| {
        // Who is not heard leaves it to others.
        if tracing::enabled!(target: "perkey", tracing::Level::WARN)
            && let Some(obstacle) = waiting.obstacle(due)
        {
            obstacle.tell(waiting.one_wait());
        }
    });
}

impl Obstacle<'_> {
    fn tell(&self, one_wait: &OneWait<'_>) {
        let Self { about, awaited, waiting, held, holders } = self;
        let thread = one_wait.thread();
        tracing::warn!(
            target: "perkey",
            table = about.name.as_deref(),
            table_type = about.table_type,
            key_type = about.key_type,
            waiter = %Called(thread.name(), thread.id()),
            waited_secs = now().saturating_duration_since(one_wait.since()).as_secs_f64(),
            location = %one_wait.location(),
            waiting,
            held = %held,
            holders = %Holders(holders.as_ref()),
            "a thread has waited long for {awaited}"
        );
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (held, first, intents) = match self {
            Self::Key(taken) => return taken.fmt(f),
            Self::EveryKey { held, first, intents } => (held, first, *intents),
        };
        match held {
            None => f.write_str("nobody has every key")?,
            Some((Mode::Write, _)) => f.write_str("every key held to write")?,
            Some((Mode::Read, held)) => write!(f, "every key held by {held} to read")?,
        }
        if let Some(first) = first {
            write!(f, ", first in line for that: {first}")?;
        }
        if intents > 0 {
            write!(f, ", {intents} in the way that hold single keys or came before")?;
        }
        Ok(())
    }
}

struct Holders<'a>(Option<&'a Oldest>);

impl fmt::Display for Holders<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(Oldest { holders, more }) = self.0 else {
            return f.write_str("not known: Options::track_owners shows them");
        };
        for (place, holder) in holders.iter().enumerate() {
            write!(f, "{}{holder}", if place == 0 { "" } else { "; " })?;
        }
        match (holders.len(), more) {
            (0, _) => f.write_str("nobody"),
            (_, 0) => Ok(()),
            (_, more) => write!(f, "; and {more} more"),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use crate::{KeyedLock, Options};

    const D: Duration = Duration::from_millis(2);

    static WARNINGS: AtomicUsize = AtomicUsize::new(0);

    fn locks() -> &'static KeyedLock<u32> {
        static LOCKS: OnceLock<KeyedLock<u32>> = OnceLock::new();
        LOCKS.get_or_init(|| KeyedLock::with_options(Options::new().warn_waiting_over(D)))
    }

    /// Waits for key 2.
    struct Waits;

    impl Subscriber for Waits {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, _: &Event<'_>) {
            WARNINGS.fetch_add(1, Ordering::Relaxed);
            drop(locks().lock(&2));
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    fn until(observed: impl Fn() -> bool) {
        while !observed() {
            thread::sleep(Duration::from_micros(50));
        }
    }

    /// The subscriber is one for the whole process: such a one `tracing` itself calls again from within, as it does not one of a
    /// thread.
    #[test]
    fn a_subscriber_that_waits_is_not_told_of_that() {
        tracing::subscriber::set_global_default(Waits).expect("no other test of this program sets one");
        let (held, wanted) = (locks().lock(&1), locks().lock(&2));
        let waiter = thread::spawn(|| drop(locks().lock(&1)));
        until(|| locks().waiters(&2) == 1);
        let waits = Instant::now();
        until(|| waits.elapsed() > 10 * D || locks().waiters(&2) > 1);
        let warnings = WARNINGS.load(Ordering::Relaxed);
        drop((held, wanted));
        waiter.join().expect("it goes on");
        assert_eq!(warnings, 1);
        assert!(locks().is_empty());
    }
}
