//! What every store has to do: one suite, run over each of them.
//!
//! A store joins in with an implementation of [`Place`] and a line `contract!(ThatPlace);`, which makes a test of each point.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use perkey::AcquireError;
use perkey::distributed::{
    Capabilities, DistributedLock, DistributedSemaphore, Error, Holder, Lease, LeaseOptions, Store,
};

use crate::support::{until, watched};

mod exclusion;
mod jobs;
mod leases;
mod listing;
mod names;
mod panics;
mod raw;
mod releasing;
mod semaphores;
mod several;
mod waiting;

pub(crate) use self::exclusion::*;
pub(crate) use self::jobs::*;
pub(crate) use self::leases::*;
pub(crate) use self::listing::*;
pub(crate) use self::names::*;
pub(crate) use self::panics::*;
pub(crate) use self::raw::*;
pub(crate) use self::releasing::*;
pub(crate) use self::semaphores::*;
pub(crate) use self::several::*;
pub(crate) use self::waiting::*;

/// Longer than anything takes that does not hang.
pub(crate) const GENEROUS: Duration = Duration::from_secs(50);
/// A time limit that is meant to be reached.
pub(crate) const SHORT: Duration = Duration::from_millis(30);

/// Where the processes of one test meet: an empty directory, a server, a namespace of its own on one.
pub(crate) trait Place: Send + Sync + Sized + 'static {
    /// A time to live that tests wait for the end of: as short as the engine grants it.
    const TTL: Duration = Duration::from_millis(300);

    /// An empty one, for the test of this name.
    fn new(test: &str) -> Self;

    /// Another store object for it, as another process would have.
    fn store(&self) -> Arc<dyn Store>;

    /// Has so much time pass, for the store at least.
    fn let_pass(&self, time: Duration) {
        thread::sleep(time);
    }

    fn capabilities(&self) -> Capabilities {
        self.store().capabilities()
    }

    /// Locks as another process would have.
    fn locks(&self) -> DistributedLock {
        DistributedLock::new(self.store())
    }

    fn locks_with(&self, options: LeaseOptions) -> DistributedLock {
        DistributedLock::with_options(self.store(), options)
    }

    /// Permits as another process would have.
    fn permits(&self, limit: u32) -> DistributedSemaphore {
        DistributedSemaphore::new(self.store(), limited(limit))
    }

    /// Options with which a hold ends by itself after [`TTL`](Self::TTL), whatever the store can do.
    fn ending(&self) -> LeaseOptions {
        match self.capabilities().leases {
            true => LeaseOptions::new().ttl(Self::TTL).renew(false),
            false => LeaseOptions::new().max_hold(Self::TTL),
        }
    }

    /// Has such a hold end.
    fn let_end(&self, lease: &Lease) {
        match self.capabilities().leases {
            true => self.let_pass(Self::TTL + Self::TTL / 10),
            false => {
                assert!(lease.lost().wait_timeout(GENEROUS), "it does not end");
                // It is given back after that.
                let (key, token) = (lease.key(), lease.fencing_token());
                until(|| !self.held().iter().any(|holder| holder.key == key && holder.token == token));
            }
        }
    }

    /// Everything that is held. Nothing where the engine cannot tell.
    fn held(&self) -> Vec<Holder> {
        match self.capabilities().lists_holders {
            true => self.locks().holders("").expect("the store answers"),
            false => Vec::new(),
        }
    }

    /// Checks that nobody holds anything, and nothing keeps others from these keys.
    #[track_caller]
    fn check_free(&self, keys: &[&str]) {
        assert_eq!(self.held(), []);
        let locks = self.locks();
        for key in keys {
            assert!(locks.try_lock(key).expect("the store answers").is_some(), "{key:?} cannot be taken");
        }
    }
}

pub(crate) fn limited(limit: u32) -> NonZeroU32 {
    NonZeroU32::new(limit).expect("not zero")
}

/// Why a key was not granted by a store that did not fail.
#[track_caller]
pub(crate) fn cause<T>(result: Result<T, Error>) -> AcquireError {
    match result {
        Ok(_) => panic!("it was granted"),
        Err(error) => error.acquire_error().cloned().unwrap_or_else(|| panic!("the store failed: {error}")),
    }
}

/// One more than was granted before, of a store that has tokens.
#[track_caller]
pub(crate) fn check_higher(later: &Lease, earlier: &Lease) {
    let (later, earlier) = (later.fencing_token(), earlier.fencing_token());
    assert_eq!(later.is_some(), earlier.is_some());
    assert!(later.is_none() || later > earlier, "{later:?} comes after {earlier:?}");
}

pub(crate) fn run<P: Place>(name: &'static str, point: fn(&P)) {
    watched(move || point(&P::new(name)));
}

/// A test of each point, over stores of one place.
macro_rules! contract {
    ($place:ty) => {
        crate::contract::contract! { $place:
            // contract/exclusion.rs
            one_holder_per_key_under_load,
            a_held_key_is_refused_and_others_are_not,
            the_same_object_does_not_enter_twice,
            one_store_object_does_not_enter_twice,
            a_lease_can_be_used_on_another_thread,
            // contract/waiting.rs
            a_wait_ends_in_time_and_leaves_nothing,
            no_time_is_one_attempt,
            a_wait_is_cancelled_and_leaves_nothing,
            what_is_cancelled_before_is_not_granted,
            a_waiter_is_granted_after_a_release,
            an_error_names_the_key_and_the_store,
            // contract/releasing.rs
            a_release_frees_the_key_for_a_second_owner,
            a_drop_frees_the_key,
            a_stale_owner_disturbs_nobody,
            // contract/leases.rs
            a_lease_that_is_not_renewed_ends,
            a_lease_that_is_renewed_goes_on,
            a_renewal_by_hand_adds_to_the_time,
            without_leases_the_time_to_live_means_nothing,
            a_forgotten_lease_ends,
            max_hold_ends_what_is_renewed,
            believed_holds_never_overlap,
            // contract/raw.rs
            renewing_never_creates,
            what_was_not_granted_cannot_be_given_back,
            // contract/semaphores.rs
            as_many_as_allowed_are_inside,
            permits_are_limited_under_load,
            a_permit_that_ends_gives_its_place_back,
            permits_of_one_object_are_limited,
            locks_and_permits_of_a_key_are_independent,
            tokens_of_permits_rise,
            // contract/several.rs
            several_keys_are_locked_in_their_order,
            several_keys_are_locked_or_none,
            several_keys_in_any_order_do_not_meet_in_a_ring,
            // contract/listing.rs
            holders_are_listed_with_their_tokens,
            prefixes_are_taken_as_they_are,
            namespaces_are_separate,
            // contract/jobs.rs
            a_job_is_run_by_one,
            a_short_job_keeps_its_key,
            a_long_job_gives_its_key_up,
            a_job_that_panics_releases,
            // contract/panics.rs
            a_panic_with_a_key_releases,
            // contract/names.rs
            any_name_is_a_key_of_its_own,
            a_separator_in_a_name_separates_nothing,
        }
    };
    ($place:ty: $($point:ident),* $(,)?) => {
        $(
            #[test]
            fn $point() {
                crate::contract::run::<$place>(stringify!($point), crate::contract::$point);
            }
        )*
    };
}
pub(crate) use contract;
