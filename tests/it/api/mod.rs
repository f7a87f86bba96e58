//! What every public call promises.

mod calls;
mod outcomes;
mod printing;
mod reentry;
mod snapshot;
mod waits;
