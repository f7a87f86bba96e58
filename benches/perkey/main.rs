//! Benchmarks of the library against itself and against the floor: what a map under one mutex costs that inserts a key
//! and removes it again. `cargo bench --bench perkey`; add `-- --quick` for a first impression, or a name to filter by.
//!
//! `fairness.rs` beside this reports waiting times and shares, which are not averages.
#![forbid(unsafe_code)]

mod contended;
mod keys;
mod uncontended;

use std::time::Duration;

use criterion::Criterion;

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(30)
        .nresamples(10_000)
        .configure_from_args();
    uncontended::integer_keys(&mut criterion);
    uncontended::string_keys(&mut criterion);
    uncontended::present_keys(&mut criterion);
    uncontended::read_and_write(&mut criterion);
    contended::one_key(&mut criterion);
    contended::sixteen_keys(&mut criterion);
    contended::many_keys(&mut criterion);
    criterion.final_summary();
}
