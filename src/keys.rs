//! Several keys at once: each once, in `Ord` order, all or none.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

use crate::content::Content;
use crate::error::AcquireError;
use crate::table::{Ask, HasTable, Hold};
use crate::wait::{Deadline, Wait};

/// The places of holds by the ids of their slots; empty where there are few.
pub(crate) struct Index(Vec<(u64, usize)>);

/// So many holds are looked through one by one.
const FEW: usize = 16;

/// Several keys that are held, until drop.
pub(crate) struct HeldKeys<T: HasTable<Content = C>, C: Content = ()> {
    owner: T,
    /// In the order in which they were taken.
    holds: Vec<Hold<C>>,
}

impl<T: HasTable<Content = C>, C: Content> HeldKeys<T, C> {
    /// No keys yet.
    #[inline]
    pub(crate) fn none(owner: T) -> Self {
        Self { owner, holds: Vec::new() }
    }

    /// Takes every key, waiting for all of them without limit. The error is `WouldDeadlock`.
    ///
    /// What is taken already when this fails or unwinds is given back when `self` goes.
    #[inline]
    pub(crate) fn take<'q, Q>(&mut self, keys: impl IntoIterator<Item = &'q Q>, ask: Ask) -> Result<(), AcquireError>
    where
        T::Key: Borrow<Q>,
        T::Hasher: BuildHasher,
        Q: ?Sized + Hash + Ord + ToOwned<Owned = T::Key> + 'q,
    {
        sorted(keys, |keys| match self.take_free(keys, ask) {
            [] => Ok(()),
            rest => self.wait_for(rest, ask, &Wait::FOREVER, Deadline::Never),
        })
    }

    /// As [`take`](Self::take), waiting for all keys together as `wait` allows.
    pub(crate) fn take_with<'q, Q>(
        &mut self,
        keys: impl IntoIterator<Item = &'q Q>,
        ask: Ask,
        wait: &Wait,
    ) -> Result<(), AcquireError>
    where
        T::Key: Borrow<Q>,
        T::Hasher: BuildHasher,
        Q: ?Sized + Hash + Ord + ToOwned<Owned = T::Key> + 'q,
    {
        if wait.is_cancelled() {
            return Err(AcquireError::Cancelled);
        }
        // The time runs from the call, and the iterator may take some.
        let deadline = wait.deadline();
        sorted(keys, |keys| match self.take_free(keys, ask) {
            [] => Ok(()),
            rest => self.wait_for(rest, ask, wait, deadline),
        })
    }

    /// Takes keys in turn, up to one that has to be waited for; gives back that one and those behind it.
    #[inline]
    fn take_free<'k, 'q, Q>(&mut self, mut keys: &'k [&'q Q], ask: Ask) -> &'k [&'q Q]
    where
        T::Key: Borrow<Q>,
        T::Hasher: BuildHasher,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = T::Key>,
    {
        let table = self.owner.table();
        self.holds = Vec::with_capacity(keys.len());
        while let [key, rest @ ..] = keys
            && let Some(hold) = table.try_acquire(*key, ask)
        {
            self.holds.push(hold);
            keys = rest;
        }
        keys
    }

    #[cold]
    #[inline(never)]
    fn wait_for<Q>(&mut self, keys: &[&Q], ask: Ask, wait: &Wait, deadline: Deadline) -> Result<(), AcquireError>
    where
        T::Key: Borrow<Q>,
        T::Hasher: BuildHasher,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = T::Key>,
    {
        let table = self.owner.table();
        // A wait begins. It could have no end if this thread held one of the keys to come.
        for key in keys {
            table.check_not_owned(*key, ask)?;
        }
        if deadline == Deadline::Passed {
            return Err(AcquireError::Busy);
        }
        for key in keys {
            self.holds.push(table.acquire_by(*key, ask, wait, Some(deadline))?);
        }
        Ok(())
    }

    /// Finds places in `holds`; to be made when all keys are taken.
    #[inline]
    pub(crate) fn index(&self) -> Index {
        if self.holds.len() > FEW { self.index_of_many() } else { Index(Vec::new()) }
    }

    #[cold]
    fn index_of_many(&self) -> Index {
        let mut places: Vec<_> = self.holds.iter().enumerate().map(|(place, hold)| (hold.id(), place)).collect();
        places.sort_unstable();
        Index(places)
    }

    /// The place of the slot of `key` among those held, if it is one of them.
    fn place<Q>(&self, index: &Index, key: &Q) -> Option<usize>
    where
        T::Key: Borrow<Q>,
        T::Hasher: BuildHasher,
        Q: ?Sized + Hash + Eq,
    {
        let id = self.owner.table().id_of(key)?;
        if index.0.is_empty() {
            return self.holds.iter().position(|hold| hold.id() == id);
        }
        let found = index.0.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(index.0[found].1)
    }

    /// What is in hand of `key`, if it is one of those held.
    pub(crate) fn in_hand<Q>(&self, index: &Index, key: &Q) -> Option<&C::InHand>
    where
        T::Key: Borrow<Q>,
        T::Hasher: BuildHasher,
        Q: ?Sized + Hash + Eq,
    {
        self.place(index, key).map(|place| &self.holds[place].in_hand)
    }

    /// As [`in_hand`](Self::in_hand), to be changed.
    pub(crate) fn in_hand_mut<Q>(&mut self, index: &Index, key: &Q) -> Option<&mut C::InHand>
    where
        T::Key: Borrow<Q>,
        T::Hasher: BuildHasher,
        Q: ?Sized + Hash + Eq,
    {
        self.place(index, key).map(|place| &mut self.holds[place].in_hand)
    }

    /// What is in hand of each of `keys`, if it is one of those held.
    ///
    /// # Panics
    ///
    /// If two of the keys are the same, and held.
    #[track_caller]
    pub(crate) fn in_hands_mut<Q, const N: usize>(
        &mut self,
        index: &Index,
        keys: [&Q; N],
    ) -> [Option<&mut C::InHand>; N]
    where
        T::Key: Borrow<Q>,
        T::Hasher: BuildHasher,
        Q: ?Sized + Hash + Eq,
    {
        let places = keys.map(|key| self.place(index, key));
        let mut sorted: Vec<(usize, usize)> =
            places.iter().enumerate().filter_map(|(nth, place)| Some(((*place)?, nth))).collect();
        sorted.sort_unstable();
        assert!(sorted.windows(2).all(|pair| pair[0].0 != pair[1].0), "one of the keys was asked for twice");
        let (mut found, mut rest, mut passed) = ([const { None }; N], &mut self.holds[..], 0);
        for (place, nth) in sorted {
            let (hold, behind) = rest[place - passed..].split_first_mut().expect("the place of a hold");
            (rest, passed) = (behind, place + 1);
            found[nth] = Some(&mut hold.in_hand);
        }
        found
    }

    /// How many keys are held.
    pub(crate) fn len(&self) -> usize {
        self.holds.len()
    }
}

impl<T: HasTable<Content = C>, C: Content> Drop for HeldKeys<T, C> {
    #[inline]
    fn drop(&mut self) {
        let table = self.owner.table();
        let mut rest = OnUnwind { holds: self.holds.iter_mut().rev(), release: |hold| table.release(hold, false) };
        for hold in rest.holds.by_ref() {
            (rest.release)(hold);
        }
    }
}

/// A key's `Drop` may panic; those still to be released are released all the same, and survive their panics, as every
/// release does while the thread unwinds.
struct OnUnwind<I: Iterator<Item = H>, H, F: Fn(H)> {
    holds: I,
    release: F,
}

impl<I: Iterator<Item = H>, H, F: Fn(H)> Drop for OnUnwind<I, H, F> {
    #[inline]
    fn drop(&mut self) {
        self.holds.by_ref().for_each(&self.release);
    }
}

/// Hands `keys` to `then`, sorted and each once, when the iterator is gone.
#[inline]
fn sorted<'q, Q, R>(keys: impl IntoIterator<Item = &'q Q>, then: impl FnOnce(&[&'q Q]) -> R) -> R
where
    Q: ?Sized + Ord + 'q,
{
    let (pair, many);
    let sorted = {
        let mut keys = keys.into_iter().fuse();
        match (keys.next(), keys.next(), keys.next()) {
            // The common case allocates nothing for this.
            (Some(one), Some(other), None) => {
                pair = [one.min(other), one.max(other)];
                &pair[usize::from(one == other)..]
            }
            (one, other, another) => {
                let mut all: Vec<&Q> = [one, other, another].into_iter().flatten().chain(keys).collect();
                all.sort_unstable();
                all.dedup();
                many = all;
                &many[..]
            }
        }
        // Here the iterator goes, before the first key is taken: it is the caller's, and may own a guard of one of them.
    };
    then(sorted)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::hash::RandomState;
    use std::panic::Location;
    use std::sync::mpsc;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::limit::Source;
    use crate::options::Options;
    use crate::table::{Kind, Table};

    struct Keys(Table<u32, RandomState>);

    impl HasTable for Keys {
        type Key = u32;
        type Hasher = RandomState;
        type Content = ();

        fn table(&self) -> &Table<u32, RandomState> {
            &self.0
        }
    }

    /// The time of the call is over, whatever `wait` would still give the second key if it were asked again.
    #[test]
    fn one_time_limit_serves_all_keys() {
        let (done, outcome) = mpsc::channel();
        thread::spawn(move || {
            let keys = Keys(Table::new("Keys", Source::Same(1), Options::new()));
            let ask = Ask { weight: 1, kind: Kind::Movable, location: Location::caller() };
            let mut taken = keys.0.acquire(&2, ask).expect("it is free");
            let mut held = HeldKeys::none(&keys);
            let result = held.wait_for(&[&1, &2], ask, &Wait::FOREVER, Deadline::At(Instant::now()));
            assert_eq!(held.len(), 1, "a free key is taken even if the time is over by then");
            drop(held);
            keys.0.release(&mut taken, false);
            assert!(keys.0.is_empty());
            done.send(result).expect("the test waits");
        });
        let outcome = outcome.recv_timeout(Duration::from_secs(60)).expect("the second key had a time of its own");
        assert_eq!(outcome, Err(AcquireError::Timeout));
    }

    #[test]
    fn keys_are_sorted_and_each_once() {
        for count in 0..9 {
            for step in [1, 2, 3, 5, 7] {
                let keys: Vec<u32> = (0..count).map(|n| n * step % count.max(1)).chain((0..count).step_by(2)).collect();
                let mut expected = keys.clone();
                expected.sort_unstable();
                expected.dedup();
                sorted(&keys, |sorted| assert_eq!(sorted, expected.iter().collect::<Vec<_>>(), "of {keys:?}"));
            }
        }
    }
}
