//! What an entry keeps for its key besides the lock: nothing, or a value.

use std::mem;

use crate::sync::Mutex;

/// What an entry keeps while nobody holds its key. Who holds the key has it in hand.
pub(crate) trait Content: Default {
    /// Whether the table has a gate, and notes who holds what.
    const GATED: bool = false;

    /// What a holder has in hand.
    type InHand: Default;

    fn take(&mut self) -> Self::InHand;

    /// Keeps what [`take`](Self::take) gave, or what has become of it.
    fn put(&mut self, in_hand: Self::InHand);

    /// Whether the entry stays for it although nobody holds or waits.
    fn is_kept(&mut self) -> bool;
}

impl Content for () {
    type InHand = ();

    #[inline]
    fn take(&mut self) {}

    #[inline]
    fn put(&mut self, (): ()) {}

    #[inline]
    fn is_kept(&mut self) -> bool {
        false
    }
}

/// Nothing, in a table of read/write locks.
#[derive(Default)]
pub(crate) struct Gated;

impl Content for Gated {
    const GATED: bool = true;

    type InHand = ();

    #[inline]
    fn take(&mut self) {}

    #[inline]
    fn put(&mut self, (): ()) {}

    #[inline]
    fn is_kept(&mut self) -> bool {
        false
    }
}

/// A value, if there is one.
///
/// The mutex is never locked: a table that owns its values is `Sync` for every `V: Send`, and this says so to the compiler.
pub(crate) struct Value<V>(Mutex<Option<V>>);

impl<V> Default for Value<V> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<V> Content for Value<V> {
    type InHand = Option<V>;

    #[inline]
    fn take(&mut self) -> Option<V> {
        self.0.get_mut().take()
    }

    #[inline]
    fn put(&mut self, in_hand: Option<V>) {
        let before = mem::replace(self.0.get_mut(), in_hand);
        debug_assert!(before.is_none(), "a value was put back beside another");
    }

    #[inline]
    fn is_kept(&mut self) -> bool {
        self.0.get_mut().is_some()
    }
}
