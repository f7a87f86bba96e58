//! A read of memory that has been given back, for AddressSanitizer.

use std::hint::black_box;

fn main() {
    let value = Box::into_raw(Box::new(7u64));
    // SAFETY: it came from a box, and nobody else has it.
    drop(unsafe { Box::from_raw(value) });
    // SAFETY: none: that is the fault.
    black_box(unsafe { value.read_volatile() });
}
