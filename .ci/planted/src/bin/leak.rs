//! Memory that nothing points to any more, for LeakSanitizer.

use std::hint::black_box;

fn main() {
    for size in 1..100 {
        // More than one: what was last in a register or on the stack still counts as pointed to.
        std::mem::forget(black_box(vec![0u8; size * 16]));
    }
}
