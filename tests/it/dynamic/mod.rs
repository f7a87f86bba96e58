//! Key spaces that change all the time, limits that change, and re-entry where it is allowed.

mod limits;
mod reentrant;
mod retention;
mod sweeper;
