//! A whole table of read/write locks, naive and in one piece: one list of all locks that are held or waited for.
//!
//! It says who may go on after each step, under `Fifo`; and it is small enough to try every interleaving of small programs.

use crate::mode::Mode;
use crate::mode::Mode::{Read, Write};

/// What is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum What {
    Key(u8, Mode),
    All(Mode),
}

use self::What::{All, Key};

impl What {
    fn mode(self) -> Mode {
        match self {
            Key(_, mode) | All(mode) => mode,
        }
    }

    fn is_all(self) -> bool {
        matches!(self, All(_))
    }

    fn is_of_key(self, key: u8) -> bool {
        matches!(self, Key(mine, _) if mine == key)
    }

    /// The conflict table.
    pub(super) fn conflicts(self, other: Self) -> bool {
        let meets = match (self, other) {
            (Key(one, _), Key(other, _)) => one == other,
            _ => true,
        };
        meets && (self.mode() == Write || other.mode() == Write)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum State {
    /// Keyed: kept out. Over all keys: waits.
    AtGate,
    /// In the queue of its key.
    Queued,
    Held,
}

use self::State::{AtGate, Held, Queued};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lock {
    pub(super) thread: u8,
    pub(super) what: What,
    pub(super) state: State,
    /// Whether the guard stays on its thread, so that the table knows who holds.
    pub(super) noted: bool,
    /// What the test calls it.
    pub(super) id: u64,
}

/// Who passes a lock over all keys that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passing {
    /// A thread that holds something that conflicts with it.
    OwnConflicts,
    /// A thread that holds something which it waits for, directly or through others.
    WaitedFor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Granted,
    Waits,
    WouldDeadlock,
}

/// In order of arrival; a request that was kept out moves to the end when it is let in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Table {
    pub(super) locks: Vec<Lock>,
    pub(super) passing: Passing,
}

impl std::hash::Hash for Passing {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

impl Table {
    pub(super) fn new(passing: Passing) -> Self {
        Self { locks: Vec::new(), passing }
    }

    fn holds(&self, thread: u8) -> impl Iterator<Item = &Lock> {
        self.locks.iter().filter(move |lock| lock.thread == thread && lock.state == Held && lock.noted)
    }

    /// Whether the thread has a request that waits.
    pub(super) fn waits(&self, thread: u8) -> bool {
        self.locks.iter().any(|lock| lock.thread == thread && lock.state != Held)
    }

    /// Whether a writer is queued for a key that the thread reads.
    fn is_awaited(&self, thread: u8) -> bool {
        self.holds(thread).any(|hold| match hold.what {
            Key(key, Read) => self.locks.iter().any(|lock| lock.state == Queued && lock.what == Key(key, Write)),
            _ => false,
        })
    }

    /// Whether a writer in front of the place `mine` is kept out who wants a key that the thread reads.
    fn is_awaited_at_gate(&self, thread: u8, mine: usize) -> bool {
        self.holds(thread).any(|hold| match hold.what {
            Key(key, Read) => {
                self.locks[..mine].iter().any(|lock| lock.state == AtGate && lock.what == Key(key, Write))
            }
            _ => false,
        })
    }

    /// Whether `thread` passes the waiting lock over all keys at `closer`.
    fn passes(&self, thread: u8, closer: usize) -> bool {
        let lock = &self.locks[closer];
        if self.holds(thread).any(|hold| hold.what.conflicts(lock.what)) {
            return true;
        }
        let writer_in_front =
            || self.locks[..closer].iter().any(|other| other.what == All(Write) && other.state != Held);
        self.passing == Passing::WaitedFor
            && self.holds(thread).next().is_some()
            && (writer_in_front() || self.is_awaited(thread))
    }

    fn is_kept_out(&self, request: usize) -> bool {
        let Lock { thread, what, .. } = self.locks[request];
        self.locks.iter().enumerate().any(|(place, closer)| {
            closer.what.is_all()
                && closer.what.conflicts(what)
                && place < request
                && (closer.state == Held || !self.passes(thread, place))
        })
    }

    fn fits(&self, request: usize) -> bool {
        let what = self.locks[request].what;
        !self.locks.iter().any(|lock| lock.state == Held && !lock.what.is_all() && lock.what.conflicts(what))
    }

    fn has_queue(&self, key: u8) -> bool {
        self.locks.iter().any(|lock| lock.state == Queued && lock.what.is_of_key(key))
    }

    /// `overtakes`: a newcomer takes a free key although others wait for it, as under `Eventual`.
    pub(super) fn request(&mut self, thread: u8, what: What, noted: bool, id: u64, overtakes: bool) -> Outcome {
        let own_conflict = |hold: &Lock| hold.what.conflicts(what);
        if self.holds(thread).any(own_conflict) {
            return Outcome::WouldDeadlock;
        }
        // Who holds something passes every waiting `write_all` with `read_all`, and whatever waits if it holds one already.
        let passes = what == All(Read) && self.holds(thread).next().is_some();
        let mine = if self.holds(thread).any(|hold| hold.what == what && passes) {
            0
        } else {
            let first_writer =
                self.locks.iter().position(|lock| passes && lock.what == All(Write) && lock.state != Held);
            first_writer.unwrap_or(self.locks.len())
        };
        self.locks.insert(mine, Lock { thread, what, state: AtGate, noted, id });
        if let Key(key, _) = what
            && !self.is_kept_out(mine)
        {
            let again = self.holds(thread).any(|hold| hold.what == what);
            let goes = self.fits(mine) && (again || overtakes || !self.has_queue(key));
            self.locks[mine].state = if goes { Held } else { Queued };
        }
        self.settle();
        let mine = self.locks.iter().rposition(|lock| lock.thread == thread && lock.id == id && lock.what == what);
        let mine = mine.expect("it was put in");
        if self.locks[mine].state == Held {
            return Outcome::Granted;
        }
        if passes && (self.is_awaited(thread) || self.is_awaited_at_gate(thread, mine)) {
            self.locks.remove(mine);
            self.settle();
            return Outcome::WouldDeadlock;
        }
        Outcome::Waits
    }

    /// Gives back, or gives up, one lock.
    pub(super) fn remove(&mut self, id: u64) {
        self.locks.retain(|lock| lock.id != id);
        self.settle();
    }

    pub(super) fn remove_all_of(&mut self, thread: u8) {
        self.locks.retain(|lock| lock.thread != thread);
        self.settle();
    }

    fn keyed(&mut self, id: u64) -> (u8, &mut Lock) {
        let lock = self.locks.iter_mut().find(|lock| lock.id == id).expect("it is held");
        let Key(key, _) = lock.what else { unreachable!("only keyed locks turn into others") };
        (key, lock)
    }

    pub(super) fn downgrade(&mut self, id: u64) {
        let (key, lock) = self.keyed(id);
        lock.what = Key(key, Read);
        self.settle();
    }

    pub(super) fn try_upgrade(&mut self, id: u64) -> bool {
        let (key, _) = self.keyed(id);
        let meets = |lock: &Lock| lock.state == Held && (lock.what.is_all() || lock.what.is_of_key(key));
        let alone = !self.locks.iter().any(|lock| lock.id != id && meets(lock));
        if alone {
            self.keyed(id).1.what = Key(key, Write);
        }
        alone
    }

    /// Lets everybody go on who may.
    fn settle(&mut self) {
        while self.let_one_in() || self.grant_one() {}
    }

    fn grant_one(&mut self) -> bool {
        let all_can_be_had = |mine: usize| {
            let Lock { thread, what, .. } = self.locks[mine];
            !self.locks.iter().enumerate().any(|(place, lock)| {
                place != mine
                    && !(lock.thread == thread && lock.noted)
                    && lock.what.conflicts(what)
                    && match lock.state {
                        Held | Queued => true,
                        AtGate => place < mine,
                    }
            })
        };
        let key_can_be_had = |mine: usize| {
            let Key(key, _) = self.locks[mine].what else { return false };
            let first = self.locks.iter().position(|lock| lock.state == Queued && lock.what.is_of_key(key));
            first == Some(mine) && self.fits(mine)
        };
        let next = (0..self.locks.len()).find(|&mine| match self.locks[mine].state {
            Held => false,
            Queued => key_can_be_had(mine),
            AtGate => self.locks[mine].what.is_all() && all_can_be_had(mine),
        });
        next.map(|next| self.locks[next].state = Held).is_some()
    }

    fn let_one_in(&mut self) -> bool {
        let next = (0..self.locks.len()).find(|&mine| {
            let lock = &self.locks[mine];
            lock.state == AtGate && !lock.what.is_all() && !self.is_kept_out(mine)
        });
        let Some(next) = next else { return false };
        let lock = self.locks.remove(next);
        let Key(key, _) = lock.what else { unreachable!("only keyed requests are kept out") };
        let has_queue = self.has_queue(key);
        self.locks.push(lock);
        let mine = self.locks.len() - 1;
        self.locks[mine].state = if !has_queue && self.fits(mine) { Held } else { Queued };
        true
    }

    /// No two that conflict are held by different threads.
    pub(super) fn check(&self) {
        for (place, lock) in self.locks.iter().enumerate() {
            for other in &self.locks[..place] {
                let both = lock.state == Held && other.state == Held;
                assert!(!both || !lock.what.conflicts(other.what), "{lock:?} beside {other:?}");
            }
        }
    }
}
