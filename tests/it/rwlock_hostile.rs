//! `KeyedRwLock`: keys that panic at the gate.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use perkey::{AcquireError, CancellationToken, KeyedRwLock, Wait};

use crate::keys::Call;
use crate::rwlock_api::What::{Read, ReadAll, Write, WriteAll};
use crate::rwlock_api::{Guard, boxed};
use crate::rwlock_stress::{Everywhere, some};
use crate::support::{Random, crowded, panics, quiet_panic, rounds, threads, until, watched_in_both_modes};

thread_local! {
    /// Whether keys may panic on this thread.
    static TOUCHES: Cell<bool> = const { Cell::new(false) };
}

/// Which of a key's methods panics, at which call from here on.
#[derive(Default)]
struct Fuse([AtomicUsize; 4]);

impl Fuse {
    fn arm(&self, call: Call, nth: usize) {
        self.0[call as usize].store(nth, Ordering::SeqCst);
    }

    /// How many calls it was away from the panic.
    fn disarm(&self, call: Call) -> usize {
        self.0[call as usize].swap(0, Ordering::SeqCst)
    }

    fn burn(&self, call: Call) {
        if !TOUCHES.try_with(Cell::get).unwrap_or(false) {
            return;
        }
        let count = &self.0[call as usize];
        let before = count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        // A second panic while the first unwinds would abort.
        if before == Ok(1) && !thread::panicking() {
            quiet_panic();
        }
    }
}

/// A key that panics on some threads.
struct Touchy {
    id: u32,
    fuse: Arc<Fuse>,
    is_clone: bool,
}

impl Touchy {
    fn new(id: u32, fuse: &Arc<Fuse>) -> Self {
        Self { id, fuse: Arc::clone(fuse), is_clone: false }
    }
}

impl Clone for Touchy {
    fn clone(&self) -> Self {
        self.fuse.burn(Call::Clone);
        Self { id: self.id, fuse: Arc::clone(&self.fuse), is_clone: true }
    }
}

impl Drop for Touchy {
    fn drop(&mut self) {
        if self.is_clone {
            self.fuse.burn(Call::Drop);
        }
    }
}

impl Hash for Touchy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.fuse.burn(Call::Hash);
        self.id.hash(state);
    }
}

impl PartialEq for Touchy {
    fn eq(&self, other: &Self) -> bool {
        self.fuse.burn(Call::Eq);
        self.id == other.id
    }
}

impl Eq for Touchy {}

/// A call that may panic by its key; whether it did.
fn touching(work: impl FnOnce()) -> bool {
    TOUCHES.set(true);
    let panicked = panics(work);
    TOUCHES.set(false);
    panicked
}

/// When the fuse is lit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Arrival,
    LetIn,
    GiveUp,
}

/// Six requests for two keys are kept out, one of which gives up. The first, the second, ... call of a method of the keys
/// panics.
fn kept_out_keys_panic(call: Call, phase: Phase) {
    watched_in_both_modes(move |fairness| {
        let fuse = Arc::new(Fuse::default());
        let locks = KeyedRwLock::<Touchy>::with_options(crowded(fairness));
        let [one, other] = [1, 2].map(|id| Touchy::new(id, &fuse));
        let mut nth = 0;
        loop {
            nth += 1;
            let (token, ended, panicked) = (CancellationToken::new(), AtomicUsize::new(0), AtomicUsize::new(0));
            let waiting = || locks.waiters(&one) + locks.waiters(&other);
            threads(|scope| {
                let all = locks.write_all();
                // One of each key waits here already for which the newcomer's key is looked at.
                let requests: [(&Touchy, bool, Wait); 6] = [
                    (&one, true, Wait::forever().max_queued(10)),
                    (&one, false, Wait::forever().max_queued(10)),
                    (&one, false, Wait::from(&token).max_queued(10)),
                    (&other, false, Wait::forever().max_queued(10)),
                    (&other, true, Wait::from(&token)),
                    (&one, true, Wait::forever()),
                ];
                if phase == Phase::Arrival {
                    fuse.arm(call, nth);
                }
                for (before, (key, writes, wait)) in requests.into_iter().enumerate() {
                    let (locks, ended, panicked) = (&locks, &ended, &panicked);
                    scope.spawn(move || {
                        let touched = touching(|| {
                            let error = if writes {
                                locks.write_with(key, wait).map(drop).err()
                            } else {
                                locks.read_with(key, wait).map(drop).err()
                            };
                            assert!(matches!(error, None | Some(AcquireError::Cancelled)), "{error:?}");
                        });
                        panicked.fetch_add(usize::from(touched), Ordering::Relaxed);
                        ended.fetch_add(1, Ordering::Release);
                    });
                    until(|| waiting() + ended.load(Ordering::Acquire) == before + 1);
                }
                if phase == Phase::GiveUp {
                    fuse.arm(call, nth);
                    token.cancel();
                    until(|| waiting() + ended.load(Ordering::Acquire) == 6 && ended.load(Ordering::Acquire) >= 2);
                }
                if phase == Phase::LetIn {
                    fuse.arm(call, nth);
                }
                // It goes through the keys of those it lets in.
                if touching(|| drop(all)) {
                    panicked.fetch_add(1, Ordering::Relaxed);
                }
            });
            let left = fuse.disarm(call);
            let panicked = panicked.into_inner();
            assert!(panicked <= 1 && ended.into_inner() == 6, "{call:?} number {nth}, {phase:?}: {panicked}");
            assert!(locks.is_empty() && waiting() == 0, "{call:?} number {nth}, {phase:?}");
            drop(locks.try_write_all().expect("nobody holds anything"));
            if left > 0 {
                break;
            }
        }
        println!("{fairness:?}: {call:?} in {phase:?} ran {} times", nth - 1);
        let least = match (phase, call) {
            (Phase::Arrival, _) => 6,
            (Phase::LetIn, Call::Eq | Call::Drop) | (Phase::GiveUp, Call::Drop) => 2,
            _ => 0,
        };
        assert!(nth > least, "{call:?} in {phase:?} ran {} times only", nth - 1);
    });
}

#[test]
fn a_key_panics_when_it_arrives_at_the_gate() {
    Call::ALL.into_iter().for_each(|call| kept_out_keys_panic(call, Phase::Arrival));
}

#[test]
fn a_key_panics_when_it_is_let_in() {
    Call::ALL.into_iter().for_each(|call| kept_out_keys_panic(call, Phase::LetIn));
}

#[test]
fn a_key_panics_when_it_gives_up_at_the_gate() {
    Call::ALL.into_iter().for_each(|call| kept_out_keys_panic(call, Phase::GiveUp));
}

/// Threads that compete for a few keys and for all, while every method of the keys panics now and then.
#[test]
fn keys_that_panic_leave_nothing_behind() {
    const THREADS: usize = 6;
    const KEYS: u32 = 3;
    let each = rounds(1_500);
    watched_in_both_modes(move |fairness| {
        let fuse = Arc::new(Fuse::default());
        let locks = KeyedRwLock::<Touchy>::with_options(crowded(fairness));
        let keys: Vec<Touchy> = (0..KEYS).map(|id| Touchy::new(id, &fuse)).collect();
        let (everywhere, panicked) = (Everywhere::new(u64::from(KEYS)), AtomicUsize::new(0));
        threads(|scope| {
            for number in 0..THREADS {
                let (fuse, locks, keys, everywhere, panicked) = (&fuse, &locks, &keys, &everywhere, &panicked);
                scope.spawn(move || {
                    let mut random = Random::new(number);
                    for _ in 0..each {
                        let moment = Duration::from_micros(random.below(60));
                        let wait = match random.below(3) {
                            0 => Wait::at_most(moment),
                            1 => Wait::forever().max_queued(2),
                            _ => Wait::forever(),
                        };
                        let what = some(&mut random, u64::from(KEYS));
                        fuse.arm(Call::ALL[random.below(4) as usize], 1 + random.below(8) as usize);
                        let touched = touching(|| {
                            let guard: Option<Guard<'_>> = match what {
                                Read(key) => locks.read_with(&keys[key as usize], wait).ok().map(boxed),
                                Write(key) => locks.write_with(&keys[key as usize], wait).ok().map(boxed),
                                ReadAll => locks.read_all_with(wait).ok().map(boxed),
                                WriteAll => locks.write_all_with(wait).ok().map(boxed),
                            };
                            if guard.is_some() {
                                everywhere.visit(what, &mut random);
                            }
                        });
                        panicked.fetch_add(usize::from(touched), Ordering::Relaxed);
                    }
                });
            }
        });
        everywhere.check();
        println!("{fairness:?}: {} panics", panicked.load(Ordering::Relaxed));
        assert!(panicked.into_inner() > 0);
        assert!(locks.is_empty() && keys.iter().all(|key| locks.waiters(key) == 0));
        drop(locks.try_write_all().expect("nobody holds anything"));
    });
}
