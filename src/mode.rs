//! Read or write: how a key, or every key, is held.

/// How a key, or every key, is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Mode {
    Read,
    Write,
}

/// The limit of every key of a table of read/write locks: a reader takes one permit, a writer all of them.
pub(crate) const MAX_READERS: u32 = u32::MAX >> 2;

impl Mode {
    pub(crate) const BOTH: [Self; 2] = [Self::Read, Self::Write];

    /// The mode of a keyed request or hold of this weight.
    #[inline]
    pub(crate) fn of_weight(weight: u32) -> Self {
        if weight == MAX_READERS { Self::Write } else { Self::Read }
    }

    pub(crate) fn weight(self) -> u32 {
        match self {
            Self::Read => 1,
            Self::Write => MAX_READERS,
        }
    }

    /// Whether a key cannot be held both ways at once.
    pub(crate) fn conflicts(self, other: Self) -> bool {
        self == Self::Write || other == Self::Write
    }

    /// The modes of intents that conflict with a lock over all keys in this mode.
    pub(crate) fn conflicting(self) -> &'static [Self] {
        match self {
            Self::Read => &[Self::Write],
            Self::Write => &Self::BOTH,
        }
    }

    /// The modes of locks over all keys that conflict with a keyed request in this mode.
    pub(crate) fn conflicting_over_all(self) -> impl Iterator<Item = Self> {
        // It is the same relation from the other side: each way, only two readers go together.
        self.conflicting().iter().copied()
    }
}
