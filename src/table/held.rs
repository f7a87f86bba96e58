//! Who holds: the inside of every guard.

use std::sync::Arc;

use super::Table;
use super::all::HoldAll;
use crate::content::Content;
use crate::owners::notes::Place;

/// What the holder of a key has: what its table calls the hold, and the entry's content. It has to be
/// [released](Table::release).
pub(crate) struct Hold<C: Content> {
    pub(super) hash: u64,
    pub(super) id: u64,
    pub(super) weight: u32,
    pub(super) place: Place,
    /// What a table that tracks owners calls this hold; 0 elsewhere.
    pub(super) mark: u64,
    pub(crate) in_hand: C::InHand,
}

impl<C: Content> Hold<C> {
    /// A hold that is not noted anywhere.
    #[inline]
    pub(super) fn new(hash: u64, id: u64, weight: u32, mark: u64, in_hand: C::InHand) -> Self {
        Self { hash, id, weight, place: Place::NONE, mark, in_hand }
    }

    /// The id of the slot.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

/// A public type, seen from its guards.
pub(crate) trait HasTable {
    type Key;
    type Hasher;
    type Content: Content;

    fn table(&self) -> &Table<Self::Key, Self::Hasher, Self::Content>;
}

impl<T: HasTable> HasTable for &T {
    type Key = T::Key;
    type Hasher = T::Hasher;
    type Content = T::Content;

    fn table(&self) -> &Table<T::Key, T::Hasher, T::Content> {
        T::table(self)
    }
}

impl<T: HasTable> HasTable for Arc<T> {
    type Key = T::Key;
    type Hasher = T::Hasher;
    type Content = T::Content;

    fn table(&self) -> &Table<T::Key, T::Hasher, T::Content> {
        T::table(self)
    }
}

/// A key that is held, until drop; the inside of every guard. `T` is the table's owner: borrowed, or an `Arc`.
pub(crate) struct Held<T: HasTable<Content = C>, C: Content = ()> {
    /// `None` once it is released.
    owner: Option<T>,
    hold: Hold<C>,
}

impl<T: HasTable<Content = C>, C: Content> Held<T, C> {
    #[inline]
    pub(crate) fn new(owner: T, hold: Hold<C>) -> Self {
        Self { owner: Some(owner), hold }
    }

    pub(crate) fn permits(&self) -> usize {
        self.hold.weight as usize
    }

    pub(crate) fn in_hand(&self) -> &C::InHand {
        &self.hold.in_hand
    }

    pub(crate) fn in_hand_mut(&mut self) -> &mut C::InHand {
        &mut self.hold.in_hand
    }

    /// Releases to the head of the queue, whatever the mode.
    pub(crate) fn hand_over(mut self) {
        self.release(true);
    }

    /// From exclusive to shared; nobody gets between.
    pub(crate) fn downgrade(&mut self) {
        if let Some(owner) = &self.owner {
            owner.table().downgrade(&mut self.hold);
        }
    }

    /// From shared to exclusive, if this is the only hold on the key and nobody holds all keys.
    pub(crate) fn try_upgrade(&mut self) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.table().try_upgrade(&mut self.hold))
    }

    #[inline]
    fn release(&mut self, hand_over: bool) {
        if let Some(owner) = self.owner.take() {
            owner.table().release(&mut self.hold, hand_over);
        }
    }
}

impl<T: HasTable<Content = C>, C: Content> Drop for Held<T, C> {
    #[inline]
    fn drop(&mut self) {
        self.release(false);
    }
}

/// A lock over every key, until drop. `T` is the table's owner, borrowed.
pub(crate) struct HeldAll<T: HasTable> {
    owner: T,
    hold: HoldAll,
}

impl<T: HasTable> HeldAll<T> {
    pub(crate) fn new(owner: T, hold: HoldAll) -> Self {
        Self { owner, hold }
    }
}

impl<T: HasTable> Drop for HeldAll<T> {
    fn drop(&mut self) {
        self.owner.table().release_all(&mut self.hold);
    }
}
