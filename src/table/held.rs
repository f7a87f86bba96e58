//! Who holds: the inside of every guard.

use std::sync::Arc;

use super::Table;
use crate::content::Content;

/// What the holder of a key has: what its table calls the hold, and the entry's content. It has to be
/// [released](Table::release).
#[derive(Default)]
pub(crate) struct Hold<C: Content> {
    pub(super) hash: u64,
    pub(super) id: u64,
    pub(super) weight: u32,
    pub(crate) in_hand: C::InHand,
}

impl<C: Content> Hold<C> {
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
