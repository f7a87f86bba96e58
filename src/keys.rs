//! Several keys at once: each once, in `Ord` order, all or none.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::mem;
use std::panic::Location;

use crate::content::Content;
use crate::error::AcquireError;
use crate::table::{Ask, HasTable, Hold, Kind};
use crate::unwind::FirstPanic;
use crate::wait::Wait;

/// So many keys cost no allocation.
const FEW: usize = 4;

/// Several keys that are held, until drop.
pub(crate) struct HeldKeys<T: HasTable<Content = C>, C: Content = ()> {
    owner: T,
    /// In the order in which they were taken.
    holds: Stack<Hold<C>>,
}

impl<T: HasTable<Content = C>, C: Content> HeldKeys<T, C> {
    /// Takes every key, waiting for all of them as `wait` allows.
    pub(crate) fn acquire<'q, Q>(
        owner: T,
        keys: impl IntoIterator<Item = &'q Q>,
        location: &'static Location<'static>,
        wait: &Wait,
    ) -> Result<Self, AcquireError>
    where
        T::Key: Borrow<Q>,
        T::Hasher: BuildHasher,
        Q: ?Sized + Hash + Ord + ToOwned<Owned = T::Key> + 'q,
    {
        let ask = Ask { weight: 1, kind: Kind::OneOfSeveral, location };
        let mut held = Self { owner, holds: Stack::default() };
        // What is held already goes with `held`, if this fails or unwinds.
        sorted(keys, |keys| held.take(keys, ask, wait))?;
        Ok(held)
    }

    fn take<Q>(&mut self, mut keys: &[&Q], ask: Ask, wait: &Wait) -> Result<(), AcquireError>
    where
        T::Key: Borrow<Q>,
        T::Hasher: BuildHasher,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = T::Key>,
    {
        let table = self.owner.table();
        if wait.is_cancelled() {
            return Err(AcquireError::Cancelled);
        }
        while let [key, rest @ ..] = keys
            && let Some(hold) = table.try_acquire(*key, ask)
        {
            self.holds.push(hold);
            keys = rest;
        }
        if keys.is_empty() {
            return Ok(());
        }
        // A wait begins. It could have no end if this thread held one of the keys to come.
        for key in keys {
            table.check_not_owned(*key, ask)?;
        }
        let deadline = wait.deadline();
        for key in keys {
            self.holds.push(table.acquire_by(*key, ask, wait, Some(deadline))?);
        }
        Ok(())
    }

    /// What is in hand of `key`, if it is one of those held.
    pub(crate) fn in_hand<Q>(&self, key: &Q) -> Option<&C::InHand>
    where
        T::Key: Borrow<Q>,
        T::Hasher: BuildHasher,
        Q: ?Sized + Hash + Eq,
    {
        let id = self.owner.table().id_of(key)?;
        self.holds.iter().find(|hold| hold.is_in(id)).map(|hold| &hold.in_hand)
    }

    /// What is in hand of each of `keys`, if it is one of those held.
    ///
    /// # Panics
    ///
    /// If two of the keys are the same.
    pub(crate) fn in_hand_mut<Q, const N: usize>(&mut self, keys: [&Q; N]) -> [Option<&mut C::InHand>; N]
    where
        T::Key: Borrow<Q>,
        T::Hasher: BuildHasher,
        Q: ?Sized + Hash + Eq,
    {
        let ids = keys.map(|key| self.owner.table().id_of(key));
        for (position, id) in ids.iter().enumerate() {
            assert!(id.is_none() || !ids[..position].contains(id), "the same key was asked for twice");
        }
        let mut found = [const { None }; N];
        for hold in self.holds.iter_mut() {
            if let Some(position) = ids.iter().position(|id| id.is_some_and(|id| hold.is_in(id))) {
                found[position] = Some(&mut hold.in_hand);
            }
        }
        found
    }

    /// How many keys are held.
    pub(crate) fn len(&self) -> usize {
        self.holds.len()
    }
}

impl<T: HasTable<Content = C>, C: Content> Drop for HeldKeys<T, C> {
    fn drop(&mut self) {
        // A key's `Drop` may panic; the others are given back all the same.
        let mut panic = FirstPanic::default();
        while let Some(mut hold) = self.holds.pop() {
            panic.catch(|| self.owner.table().release(&mut hold, false));
        }
        panic.resume();
    }
}

/// Hands `keys` to `then`, sorted and each once.
fn sorted<'q, Q, R>(keys: impl IntoIterator<Item = &'q Q>, then: impl FnOnce(&[&'q Q]) -> R) -> R
where
    Q: ?Sized + Ord + 'q,
{
    let mut keys = keys.into_iter();
    let Some(first) = keys.next() else { return then(&[]) };
    let mut few = [first; FEW];
    let mut len = 1;
    for key in keys.by_ref() {
        if len == FEW {
            let mut many: Vec<&Q> = few.into_iter().chain([key]).chain(keys).collect();
            many.sort_unstable();
            many.dedup();
            return then(&many);
        }
        few[len] = key;
        len += 1;
    }
    let few = &mut few[..len];
    few.sort_unstable();
    then(dedup(few))
}

/// As `Vec::dedup`.
fn dedup<T: PartialEq>(sorted: &mut [T]) -> &[T] {
    let mut kept = 1;
    for next in 1..sorted.len() {
        if sorted[next] != sorted[kept - 1] {
            sorted.swap(kept, next);
            kept += 1;
        }
    }
    &sorted[..kept.min(sorted.len())]
}

/// A stack that needs no allocation for a few.
#[derive(Default)]
struct Stack<T> {
    few: [T; FEW],
    len: usize,
    /// What is above the few.
    more: Vec<T>,
}

impl<T: Default> Stack<T> {
    fn len(&self) -> usize {
        self.len + self.more.len()
    }

    fn push(&mut self, item: T) {
        if self.len < FEW {
            self.few[self.len] = item;
            self.len += 1;
        } else {
            self.more.push(item);
        }
    }

    fn pop(&mut self) -> Option<T> {
        self.more.pop().or_else(|| {
            self.len = self.len.checked_sub(1)?;
            Some(mem::take(&mut self.few[self.len]))
        })
    }

    fn iter(&self) -> impl Iterator<Item = &T> {
        self.few[..self.len].iter().chain(&self.more)
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.few[..self.len].iter_mut().chain(&mut self.more)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sorted_and_each_once() {
        for count in 0..=2 * FEW as u32 {
            for step in [1, 2, 3, 5, 7] {
                let keys: Vec<u32> = (0..count).map(|n| n * step % count.max(1)).chain((0..count).step_by(2)).collect();
                let mut expected = keys.clone();
                expected.sort_unstable();
                expected.dedup();
                sorted(&keys, |sorted| assert_eq!(sorted, expected.iter().collect::<Vec<_>>(), "of {keys:?}"));
            }
        }
    }

    #[test]
    fn a_stack_gives_back_what_it_was_given() {
        for count in 0..=3 * FEW {
            let mut stack = Stack::default();
            (0..count).for_each(|item| stack.push(item));
            assert_eq!(stack.len(), count);
            stack.iter_mut().for_each(|item| *item += 1);
            assert_eq!(stack.iter().copied().collect::<Vec<_>>(), (1..=count).collect::<Vec<_>>());
            assert_eq!(std::iter::from_fn(|| stack.pop()).collect::<Vec<_>>(), (1..=count).rev().collect::<Vec<_>>());
            assert_eq!((stack.len(), stack.pop()), (0, None));
        }
    }
}
