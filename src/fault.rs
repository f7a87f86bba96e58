//! Faults planted on purpose, to show that the checkers report them.
//!
//! Nothing of this is in the library as it is built for users: outside tests and `cfg(loom)`, [`planted`] is always
//! false. A test process is told its fault by the environment variable `PERKEY_FAULT`.

/// A fault of the protocol that was seen in a library of this kind, or in our own prototype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "the variants are only looked at by the builds that can plant them")]
pub(crate) enum Fault {
    /// The last holder lets the shard go between "count is zero" and "entry removed".
    RemoveInTwoSteps,
    /// A waiter that gives up does not look whether it was granted meanwhile.
    GrantLost,
    /// Who takes its permits after a ring does not settle the slot, so one ring serves two free permits.
    OneRingForTwoPermits,
    /// A head that gives up does not settle the slot.
    HeadLeavesUnsettled,
    /// A ring is taken for a grant.
    RingIsGrant,
    /// A waiter clears its signal after it looked, just before it parks.
    ClearBeforePark,
    /// A newcomer under FIFO does not look at the queue.
    FifoBarges,
    /// The head of the queue never becomes due.
    NeverDue,
    /// "Rung" stays when the head changes.
    RungOutlivesHead,
    /// A head that was rung already is rung again.
    RungTwice,
}

#[cfg(not(any(test, loom)))]
#[inline(always)]
pub(crate) const fn planted(_: Fault) -> bool {
    false
}

#[cfg(any(test, loom))]
pub(crate) fn planted(fault: Fault) -> bool {
    static PLANTED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    PLANTED.get_or_init(|| std::env::var("PERKEY_FAULT").ok()).as_deref() == Some(&*format!("{fault:?}"))
}
