//! Who holds: the inside of every guard.

use std::sync::Arc;

use super::Table;

/// What a hold is called in its table.
#[derive(Clone, Copy)]
pub(crate) struct HoldId {
    pub(super) hash: u64,
    pub(super) id: u64,
    pub(super) weight: u32,
}

/// A public type, seen from its guards.
pub(crate) trait HasTable {
    type Key;
    type Hasher;

    fn table(&self) -> &Table<Self::Key, Self::Hasher>;
}

impl<T: HasTable> HasTable for &T {
    type Key = T::Key;
    type Hasher = T::Hasher;

    fn table(&self) -> &Table<Self::Key, Self::Hasher> {
        T::table(self)
    }
}

impl<T: HasTable> HasTable for Arc<T> {
    type Key = T::Key;
    type Hasher = T::Hasher;

    fn table(&self) -> &Table<Self::Key, Self::Hasher> {
        T::table(self)
    }
}

/// A key that is held, until drop; the inside of every guard. `T` is the table's owner: borrowed, or an `Arc`.
pub(crate) struct Held<T: HasTable> {
    /// `None` once it is released.
    owner: Option<T>,
    id: HoldId,
}

impl<T: HasTable> Held<T> {
    #[inline]
    pub(crate) fn new(owner: T, id: HoldId) -> Self {
        Self { owner: Some(owner), id }
    }

    pub(crate) fn permits(&self) -> usize {
        self.id.weight as usize
    }

    /// Releases to the head of the queue, whatever the mode.
    pub(crate) fn hand_over(mut self) {
        self.release(true);
    }

    #[inline]
    fn release(&mut self, hand_over: bool) {
        if let Some(owner) = self.owner.take() {
            let HoldId { hash, id, weight } = self.id;
            owner.table().release(hash, id, weight, hand_over);
        }
    }
}

impl<T: HasTable> Drop for Held<T> {
    #[inline]
    fn drop(&mut self) {
        self.release(false);
    }
}
