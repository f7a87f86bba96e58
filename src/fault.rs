//! Faults planted on purpose, to show that the checkers report them.
//!
//! Nothing of this is in the library as it is built for users: outside tests and `cfg(loom)`, [`planted`] is always
//! false. A test process is told its fault by the environment variable `PERKEY_FAULT`.

/// A fault of the protocol that libraries of this kind have had, or nearly had.
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
    /// A head that was rung takes its permits without looking whether they are free.
    RingIsGrant,
    /// A waiter clears its signal after it looked, just before it parks.
    ClearBeforePark,
    /// A newcomer under FIFO does not look at the queue.
    FifoBarges,
    /// The head of the queue never becomes due.
    NeverDue,
    /// "Rung" stays when the head changes.
    RungOutlivesHead,
    /// "Rung" stays when the head looks and finds nothing free.
    LookKeepsRung,
    /// A head that was rung already is rung again.
    RungTwice,
    /// A limit that falls leaves those in the queue who ask for more.
    TooHeavyStays,
    /// An acquisition does not look at the table's limit again when it makes an entry.
    StaleLimit,
    /// A sweep removes what it read as idle, without looking again.
    SweepsTheHeld,
    /// A waiter that gives up and was granted meanwhile leaves the value in the entry.
    ValueStaysBehind,
    /// An entry goes when nobody holds or waits, whether it has a value or not.
    ValueGoesWithTheLast,
    /// Who holds something waits behind locks over all keys as any other.
    NobodyPasses,
    /// A thread passes only what conflicts with its own holds.
    OnlyOwnConflictsPass,
    /// Who is kept out does not look again when a writer is queued.
    KeptOutLookOnce,
    /// Who wants all keys does not wait for those that are held.
    ClosersDoNotWait,
    /// Who leaves by a closed door does not tell the gate.
    LeftUntold,
    /// A request for all keys that gives up leaves the doors closed.
    CloserLeavesUnsettled,
    /// A request that is kept out and gives up does not look whether it was let in meanwhile.
    LetInLost,
}

#[cfg(not(any(test, loom)))]
#[inline(always)]
pub(crate) const fn planted(_: Fault) -> bool {
    false
}

#[cfg(any(test, loom))]
pub(crate) fn planted(fault: Fault) -> bool {
    static PLANTED: std::sync::OnceLock<Option<Fault>> = std::sync::OnceLock::new();
    *PLANTED.get_or_init(Fault::from_env) == Some(fault)
}

#[cfg(any(test, loom))]
impl Fault {
    const ALL: [Self; 23] = [
        Self::RemoveInTwoSteps,
        Self::GrantLost,
        Self::OneRingForTwoPermits,
        Self::HeadLeavesUnsettled,
        Self::RingIsGrant,
        Self::ClearBeforePark,
        Self::FifoBarges,
        Self::NeverDue,
        Self::RungOutlivesHead,
        Self::LookKeepsRung,
        Self::RungTwice,
        Self::TooHeavyStays,
        Self::StaleLimit,
        Self::SweepsTheHeld,
        Self::ValueStaysBehind,
        Self::ValueGoesWithTheLast,
        Self::NobodyPasses,
        Self::OnlyOwnConflictsPass,
        Self::KeptOutLookOnce,
        Self::ClosersDoNotWait,
        Self::LeftUntold,
        Self::CloserLeavesUnsettled,
        Self::LetInLost,
    ];

    fn from_env() -> Option<Self> {
        let name = std::env::var("PERKEY_FAULT").ok()?;
        let fault = Self::ALL.into_iter().find(|fault| format!("{fault:?}") == name);
        assert!(fault.is_some(), "PERKEY_FAULT names no fault: {name:?}");
        fault
    }
}
