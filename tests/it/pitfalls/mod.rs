//! What went wrong in other libraries of this kind, one test for each kind of fault, named for the fault.

mod deadlocks;
mod fairness;
mod keys;
mod meeting;
mod reclaiming;
mod threads;
