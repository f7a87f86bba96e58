//! Uncontended pairs, to be counted by callgrind: `.ci/instructions` compares them with the figures in `instructions.txt`.
//!
//! ```text
//! cargo bench --bench instructions -- lock 1000        # takes and gives back 1,000 fresh keys, and prints nothing
//! ```

use std::hint::black_box;
use std::process::ExitCode;

use perkey::{KeyedLock, KeyedMutex, KeyedRwLock, KeyedSemaphore};

/// Fresh keys: xorshift64*, a period that nobody sees the end of.
struct Keys(u64);

impl Keys {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        black_box(self.0.wrapping_mul(0x2545_F491_4F6C_DD1D))
    }
}

/// Shows a guard to whoever might look; it goes when the call is over.
fn held<T>(guard: &T) {
    black_box(guard);
}

/// A call and its end, with a key.
type Pair = Box<dyn FnMut(u64)>;

fn pairs() -> Vec<(&'static str, Pair)> {
    let names = |key: u64| format!("{key:024}");
    vec![
        ("nothing", Box::new(|_| ())),
        ("name", Box::new(move |key| drop(black_box(names(key))))),
        ("lock", {
            let locks = KeyedLock::<u64>::new();
            Box::new(move |key| held(&locks.lock(&key)))
        }),
        ("lock-name", {
            let locks = KeyedLock::<String>::new();
            Box::new(move |key| held(&locks.lock(names(key).as_str())))
        }),
        ("with_key", {
            let locks = KeyedLock::<u64>::new();
            Box::new(move |key| locks.with_key(&key, || black_box(())))
        }),
        ("lock_keys", {
            let locks = KeyedLock::<u64>::new();
            Box::new(move |key| held(&locks.lock_keys([&key, &!key])))
        }),
        ("mutex", {
            let values = KeyedMutex::<u64, u64>::new();
            Box::new(move |key| held(&values.lock(&key)))
        }),
        ("permit", {
            let hosts = KeyedSemaphore::<u64, 4>::new();
            Box::new(move |key| held(&hosts.acquire(&key)))
        }),
        ("read", {
            let locks = KeyedRwLock::<u64>::new();
            Box::new(move |key| held(&locks.read(&key)))
        }),
        ("write", {
            let locks = KeyedRwLock::<u64>::new();
            Box::new(move |key| held(&locks.write(&key)))
        }),
    ]
}

fn main() -> ExitCode {
    // cargo adds `--bench`.
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let mut pairs = pairs();
    let names = pairs.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" ");
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        // By itself among other benchmarks there is nothing to see.
        [] => {}
        ["--list"] => println!("{names}"),
        [name, times] => {
            let (Some((_, pair)), Ok(times)) = (pairs.iter_mut().find(|(own, _)| *own == name), times.parse::<u64>())
            else {
                eprintln!("instructions: give one of {names}, and a number of times");
                return ExitCode::from(2);
            };
            let mut keys = Keys(88_172_645_463_325_252);
            (0..times).for_each(|_| pair(keys.next()));
        }
        _ => {
            eprintln!("usage: instructions --list | NAME TIMES");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
