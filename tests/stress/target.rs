//! The thing under test, seen from the run: the library's types here, broken ones in `busted.rs`.

use std::cell::Cell;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::mem;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use perkey::{
    AcquireError, ArcKeyedLockGuard, ArcKeyedPermit, CancellationToken, Fairness, KeyStatus, KeyedLock, KeyedLockGuard,
    KeyedSemaphore, Options, Wait,
};

/// A keyed lock of some kind. Keys are numbered; a lock has a limit of 1.
pub(crate) trait Target: Send + Sync + 'static {
    /// Permits that may be given back on another thread.
    type Movable: Send + 'static;

    fn limit(&self) -> u32;

    /// Takes the permits, runs `inside`, gives them back.
    fn enter(&self, call: &Call, inside: impl FnOnce()) -> Result<(), Refusal>;

    fn enter_movable(&self, call: &Call) -> Result<Self::Movable, Refusal>;

    fn leave_movable(&self, hold: Self::Movable, release: Release);

    /// Takes one permit of each of two different keys, in this order, and gives them back in the other.
    fn enter_both(&self, first: usize, second: usize, inside: impl FnOnce());

    fn free(&self, key: usize) -> u32;

    fn waiters(&self, key: usize) -> usize;

    fn len(&self) -> usize;

    fn snapshot(&self) -> Vec<Seen>;

    /// The snapshot in full, for people.
    fn describe(&self) -> String;

    /// Whether a snapshot may show free permits that the head of a queue has not been granted.
    fn head_may_fit(&self) -> bool {
        true
    }

    /// What must hold for a thread that is inside by [`enter`](Self::enter), and calls that can only fail.
    fn look_from_inside(&self, _call: &Call) -> Result<(), String> {
        Ok(())
    }

    /// Makes the `n`th use of a key's own code on this thread panic; 0 for never.
    fn arm(&self, _n: u32) {}

    /// Ends every wait with [`Refusal::Rescued`]; false if it cannot.
    fn rescue(&self) -> bool {
        false
    }
}

/// The payload of the panics that the run asks for. They are started by `resume_unwind`, which leaves the panic hook
/// alone, so they are quiet, and the hook stays as loud as ever for the others.
pub(crate) struct Planned;

pub(crate) fn panic_as_planned() -> ! {
    resume_unwind(Box::new(Planned))
}

/// One acquisition.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) key: usize,
    pub(crate) weight: u32,
    pub(crate) patience: Patience,
    pub(crate) form: Form,
    pub(crate) release: Release,
}

#[derive(Clone, Debug)]
pub(crate) struct Patience {
    pub(crate) time: Time,
    pub(crate) tokens: Vec<CancellationToken>,
    pub(crate) max_queued: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Time {
    Now,
    AtMost(Duration),
    Until(Instant),
    Forever,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The call that takes a closure.
    Closure,
    /// The call that is named for its time limit, and gives a guard.
    Short,
    /// The call that takes a `Wait`, and gives a guard.
    With,
}

/// How a guard goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    Dropped,
    Fair,
    Boxed,
    Replaced,
}

/// Why a call was not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// `None`.
    Untold,
    Busy,
    Timeout,
    Cancelled,
    QueueFull,
    /// The target has no such call.
    Unsupported,
    /// By [`Target::rescue`].
    Rescued,
    /// A reason that no call of the run should meet.
    Other(String),
}

impl From<AcquireError> for Refusal {
    fn from(error: AcquireError) -> Self {
        match error {
            AcquireError::Busy => Self::Busy,
            AcquireError::Timeout => Self::Timeout,
            AcquireError::Cancelled => Self::Cancelled,
            AcquireError::QueueFull => Self::QueueFull,
            other => Self::Other(other.to_string()),
        }
    }
}

/// One key of a snapshot.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) held: u32,
    pub(crate) limit: u32,
    pub(crate) waiting: Vec<u32>,
}

impl<K> From<KeyStatus<K>> for Seen {
    fn from(status: KeyStatus<K>) -> Self {
        let waiting = status.waiters.iter().map(|waiter| waiter.permits as u32).collect();
        Self { held: status.held as u32, limit: status.limit as u32, waiting }
    }
}

impl Call {
    /// One attempt to take all permits.
    pub(crate) fn all_at_once(key: usize, limit: u32) -> Self {
        let patience = Patience { time: Time::Now, tokens: Vec::new(), max_queued: None };
        Self { key, weight: limit, patience, form: Form::With, release: Release::Dropped }
    }

    /// One permit, however long it takes.
    pub(crate) fn endless(key: usize) -> Self {
        let mut call = Self::all_at_once(key, 1);
        call.patience.time = Time::Forever;
        call
    }

    /// Whether the wait asks for nothing that a call without a `Wait` does not know.
    fn is_plain(&self) -> bool {
        self.form != Form::With
            && self.weight == 1
            && self.patience.tokens.is_empty()
            && self.patience.max_queued.is_none()
    }
}

impl Patience {
    pub(crate) fn is_cancelled(&self) -> bool {
        self.tokens.iter().any(CancellationToken::is_cancelled)
    }

    fn wait(&self) -> Wait {
        let mut wait = match self.time {
            Time::Now => Wait::now(),
            Time::AtMost(duration) => Wait::at_most(duration),
            Time::Until(instant) => Wait::until(instant),
            Time::Forever => Wait::forever(),
        };
        for token in &self.tokens {
            wait = wait.or_cancelled(token);
        }
        match self.max_queued {
            Some(count) => wait.max_queued(count),
            None => wait,
        }
    }
}

/// Lets a guard go after it was moved about.
fn let_go<G>(guard: G, release: Release) {
    match release {
        Release::Dropped | Release::Fair => drop(guard),
        Release::Boxed => drop(Box::new(guard)),
        Release::Replaced => {
            let mut place = Some(guard);
            let moved = mem::take(&mut place);
            drop(place);
            drop(vec![moved]);
        }
    }
}

/// A key made of its number.
pub(crate) trait Name: Hash + Eq + Clone + Debug + Send + Sync + 'static {
    fn name(number: usize) -> Self;

    fn arm(_n: u32) {}
}

impl Name for u64 {
    fn name(number: usize) -> Self {
        number as u64
    }
}

impl Name for String {
    fn name(number: usize) -> Self {
        format!("account-{number}")
    }
}

/// Keys that all hash alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Alike(usize);

impl Hash for Alike {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u8(0);
    }
}

impl Name for Alike {
    fn name(number: usize) -> Self {
        Self(number)
    }
}

thread_local! {
    static FUSE: Cell<u32> = const { Cell::new(0) };
}

/// A key whose `Hash`, `Eq` and `Clone` panic when the fuse of their thread has burnt down. It hashes alike with every
/// fourth key, so that its `Eq` is asked more often.
#[derive(Debug)]
pub(crate) struct Touchy(usize);

impl Touchy {
    fn touched() {
        let fuse = FUSE.get();
        FUSE.set(fuse.saturating_sub(1));
        if fuse == 1 {
            panic_as_planned();
        }
    }
}

impl Hash for Touchy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Self::touched();
        (self.0 % 4).hash(state);
    }
}

impl PartialEq for Touchy {
    fn eq(&self, other: &Self) -> bool {
        Self::touched();
        self.0 == other.0
    }
}

impl Eq for Touchy {}

impl Clone for Touchy {
    fn clone(&self) -> Self {
        Self::touched();
        Self(self.0)
    }
}

impl Name for Touchy {
    fn name(number: usize) -> Self {
        Self(number)
    }

    fn arm(n: u32) {
        FUSE.set(n);
    }
}

/// A `KeyedLock` under test.
pub(crate) struct Locks<K> {
    table: Arc<KeyedLock<K>>,
    names: Vec<K>,
    fairness: Fairness,
}

impl<K: Name> Locks<K> {
    pub(crate) fn new(keys: usize, fairness: Fairness) -> Self {
        let table = KeyedLock::with_options(Options::new().fairness(fairness).name("stress"));
        Self { table: Arc::new(table), names: (0..keys).map(K::name).collect(), fairness }
    }

    pub(crate) fn hold_for_ever(&self, key: usize) {
        mem::forget(self.table.lock_arc(&self.names[key]));
    }

    fn guard(&self, call: &Call) -> Result<KeyedLockGuard<'_, K>, Refusal> {
        let key = &self.names[call.key];
        if !call.is_plain() {
            return Ok(self.table.lock_with(key, call.patience.wait())?);
        }
        match call.patience.time {
            Time::Now => self.table.try_lock(key).ok_or(Refusal::Untold),
            Time::AtMost(duration) => self.table.try_lock_for(key, duration).ok_or(Refusal::Untold),
            Time::Until(instant) => Ok(self.table.lock_with(key, instant)?),
            Time::Forever => Ok(self.table.lock(key)),
        }
    }
}

impl<K: Name> Target for Locks<K> {
    type Movable = ArcKeyedLockGuard<K>;

    fn limit(&self) -> u32 {
        1
    }

    fn enter(&self, call: &Call, inside: impl FnOnce()) -> Result<(), Refusal> {
        if call.form == Form::Closure {
            let key = &self.names[call.key];
            return match call.patience.time {
                Time::Now if call.patience.tokens.is_empty() => {
                    self.table.try_with_key(key, inside).ok_or(Refusal::Untold)
                }
                Time::Forever if call.is_plain() => {
                    self.table.with_key(key, inside);
                    Ok(())
                }
                _ => Ok(self.table.with_key_within(key, call.patience.wait(), inside)?),
            };
        }
        let guard = self.guard(call)?;
        inside();
        match call.release {
            Release::Fair => KeyedLockGuard::unlock_fair(guard),
            release => let_go(guard, release),
        }
        Ok(())
    }

    fn enter_movable(&self, call: &Call) -> Result<Self::Movable, Refusal> {
        let key = &self.names[call.key];
        match call.patience.time {
            Time::Now if call.is_plain() => self.table.try_lock_arc(key).ok_or(Refusal::Untold),
            Time::Forever if call.is_plain() => Ok(self.table.lock_arc(key)),
            _ => Ok(self.table.lock_arc_with(key, call.patience.wait())?),
        }
    }

    fn leave_movable(&self, hold: Self::Movable, release: Release) {
        match release {
            Release::Fair => ArcKeyedLockGuard::unlock_fair(hold),
            release => let_go(hold, release),
        }
    }

    fn enter_both(&self, first: usize, second: usize, inside: impl FnOnce()) {
        let mut first = self.table.lock(&self.names[first]);
        let mut second = self.table.lock(&self.names[second]);
        inside();
        mem::swap(&mut first, &mut second);
    }

    fn free(&self, key: usize) -> u32 {
        u32::from(!self.table.is_locked(&self.names[key]))
    }

    fn waiters(&self, key: usize) -> usize {
        self.table.waiters(&self.names[key])
    }

    fn len(&self) -> usize {
        self.table.len()
    }

    fn snapshot(&self) -> Vec<Seen> {
        self.table.snapshot().into_iter().map(Seen::from).collect()
    }

    fn describe(&self) -> String {
        format!("{:#?}", self.table.snapshot())
    }

    fn head_may_fit(&self) -> bool {
        self.fairness != Fairness::Fifo
    }

    fn look_from_inside(&self, call: &Call) -> Result<(), String> {
        let key = &self.names[call.key];
        if !self.table.is_locked_by_current_thread(key) {
            return Err("a thread does not own what it holds".to_owned());
        }
        if self.table.try_lock(key).is_some() {
            return Err("try_lock gave a key that its own thread holds".to_owned());
        }
        for outcome in [
            self.table.lock_with(key, Wait::forever()).map(drop),
            self.table.lock_with(key, Wait::now()).map(drop),
            self.table.lock_arc_with(key, Duration::from_secs(3600)).map(drop),
        ] {
            if !matches!(outcome, Err(AcquireError::WouldDeadlock(_))) {
                return Err(format!("re-entry gave {outcome:?}"));
            }
        }
        Ok(())
    }

    fn arm(&self, n: u32) {
        K::arm(n);
    }
}

/// A `KeyedSemaphore` under test.
pub(crate) struct Permits<K, const N: usize> {
    table: Arc<KeyedSemaphore<K, N>>,
    limit: u32,
    names: Vec<K>,
    fairness: Fairness,
}

impl<K: Name, const N: usize> Permits<K, N> {
    pub(crate) fn new(keys: usize, fairness: Fairness) -> Self {
        let table = KeyedSemaphore::with_options(Options::new().fairness(fairness).name("stress"));
        Self { table: Arc::new(table), limit: N as u32, names: (0..keys).map(K::name).collect(), fairness }
    }
}

impl<K: Name> Permits<K, { perkey::DYNAMIC }> {
    pub(crate) fn with_limit(limit: usize, keys: usize, fairness: Fairness) -> Self {
        let options = Options::new().fairness(fairness).name("stress");
        let table = KeyedSemaphore::with_limit_and_options(limit, options);
        Self { table: Arc::new(table), limit: limit as u32, names: (0..keys).map(K::name).collect(), fairness }
    }
}

impl<K: Name, const N: usize> Target for Permits<K, N> {
    type Movable = ArcKeyedPermit<K, N>;

    fn limit(&self) -> u32 {
        self.limit
    }

    fn enter(&self, call: &Call, inside: impl FnOnce()) -> Result<(), Refusal> {
        let key = &self.names[call.key];
        let permit = if call.weight > 1 {
            self.table.acquire_many(key, call.weight as usize, call.patience.wait())?
        } else if call.form == Form::Closure {
            return match call.patience.time {
                Time::Now if call.patience.tokens.is_empty() => {
                    self.table.try_with_key(key, inside).ok_or(Refusal::Untold)
                }
                Time::Forever if call.is_plain() => {
                    self.table.with_key(key, inside);
                    Ok(())
                }
                _ => Ok(self.table.with_key_within(key, call.patience.wait(), inside)?),
            };
        } else if call.is_plain() {
            match call.patience.time {
                Time::Now => self.table.try_acquire(key).ok_or(Refusal::Untold)?,
                Time::AtMost(duration) => self.table.try_acquire_for(key, duration).ok_or(Refusal::Untold)?,
                Time::Until(instant) => self.table.acquire_with(key, instant)?,
                Time::Forever => self.table.acquire(key),
            }
        } else {
            self.table.acquire_with(key, call.patience.wait())?
        };
        inside();
        let_go(permit, call.release);
        Ok(())
    }

    fn enter_movable(&self, call: &Call) -> Result<Self::Movable, Refusal> {
        let key = &self.names[call.key];
        if call.weight > 1 {
            return Ok(self.table.acquire_many_arc(key, call.weight as usize, call.patience.wait())?);
        }
        match call.patience.time {
            Time::Now if call.is_plain() => self.table.try_acquire_arc(key).ok_or(Refusal::Untold),
            Time::Forever if call.is_plain() => Ok(self.table.acquire_arc(key)),
            _ => Ok(self.table.acquire_arc_with(key, call.patience.wait())?),
        }
    }

    fn leave_movable(&self, hold: Self::Movable, release: Release) {
        let_go(hold, release);
    }

    fn enter_both(&self, first: usize, second: usize, inside: impl FnOnce()) {
        let mut first = self.table.acquire(&self.names[first]);
        let mut second = self.table.acquire(&self.names[second]);
        inside();
        mem::swap(&mut first, &mut second);
    }

    fn free(&self, key: usize) -> u32 {
        self.table.available_permits(&self.names[key]) as u32
    }

    fn waiters(&self, key: usize) -> usize {
        self.table.waiters(&self.names[key])
    }

    fn len(&self) -> usize {
        self.table.len()
    }

    fn snapshot(&self) -> Vec<Seen> {
        self.table.snapshot().into_iter().map(Seen::from).collect()
    }

    fn describe(&self) -> String {
        format!("{:#?}", self.table.snapshot())
    }

    fn head_may_fit(&self) -> bool {
        self.fairness != Fairness::Fifo
    }

    fn look_from_inside(&self, call: &Call) -> Result<(), String> {
        let key = &self.names[call.key];
        let free = self.table.available_permits(key) as u32;
        if free + call.weight > self.limit {
            return Err(format!("{free} permits are free while {} of {} are out", call.weight, self.limit));
        }
        let limit = self.limit as usize;
        for requested in [0, limit + 1, usize::MAX] {
            let outcome = self.table.acquire_many(key, requested, Wait::forever()).map(drop);
            if outcome != Err(AcquireError::OverLimit { requested, limit }) {
                return Err(format!("{requested} permits of {limit} gave {outcome:?}"));
            }
        }
        // All that are left but one more than there can be: never granted beside this hold.
        let outcome = self.table.acquire_many(key, limit, Wait::now()).map(drop);
        if outcome != Err(AcquireError::Busy) {
            return Err(format!("all permits beside a hold of {} gave {outcome:?}", call.weight));
        }
        Ok(())
    }

    fn arm(&self, n: u32) {
        K::arm(n);
    }
}
