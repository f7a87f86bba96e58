use perkey::*;
use std::sync::atomic::*;
use std::time::Duration;

#[test]
fn many() {
    for f in [Fairness::Eventual, Fairness::Fifo] {
        let l = KeyedLock::<u32>::with_options(Options::new().fairness(f));
        let inside: Vec<AtomicU32> = (0..4).map(|_| AtomicU32::new(0)).collect();
        std::thread::scope(|s| {
            for t in 0..8u32 {
                let (l, inside) = (&l, &inside);
                s.spawn(move || {
                    for i in 0..20000u32 {
                        let k = (i * 7 + t) % 4;
                        let g = match i % 5 {
                            0 => l.try_lock(&k),
                            1 => l.try_lock_for(&k, Duration::from_micros(20)),
                            _ => Some(l.lock(&k)),
                        };
                        if let Some(g) = g {
                            assert_eq!(inside[k as usize].fetch_add(1, Ordering::Relaxed), 0);
                            inside[k as usize].fetch_sub(1, Ordering::Relaxed);
                            drop(g)
                        }
                    }
                });
            }
        });
        assert_eq!(l.len(), 0);
    }
}
#[test]
fn sema() {
    for f in [Fairness::Eventual, Fairness::Fifo] {
        let l = KeyedSemaphore::<u32, 3>::with_options(Options::new().fairness(f));
        let inside = AtomicU32::new(0);
        std::thread::scope(|s| {
            for t in 0..8u32 {
                let (l, inside) = (&l, &inside);
                s.spawn(move || {
                    for i in 0..20000u32 {
                        let w = 1 + (i + t) % 3;
                        let g = l.acquire_many(&0, w as usize, Wait::forever()).unwrap();
                        assert!(inside.fetch_add(w, Ordering::Relaxed) + w <= 3);
                        inside.fetch_sub(w, Ordering::Relaxed);
                        drop(g)
                    }
                });
            }
        });
        assert_eq!(l.len(), 0);
    }
}
