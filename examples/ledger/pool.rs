//! The pool of worker threads, and the progress bar.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Calls `apply` once for each of `items`, on `threads` threads, and returns how long it took.
pub(crate) fn run<T: Sync>(items: &[T], threads: usize, apply: impl Fn(&T) + Sync) -> Duration {
    let next = AtomicUsize::new(0);
    // Nothing is sent: the channel is closed when the last worker lets go of its end, also by a panic.
    let (working, all_done) = mpsc::channel::<Infallible>();
    let begin = Instant::now();
    thread::scope(|scope| {
        for _ in 0..threads {
            let working = working.clone();
            let (next, apply) = (&next, &apply);
            scope.spawn(move || {
                let _working = working;
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    apply(item);
                }
            });
        }
        drop(working);
        show_progress(&all_done, begin, items.len(), &next);
        begin.elapsed()
    })
}

/// Returns when all is done. Shows a bar meanwhile if that takes long and stderr is a terminal.
fn show_progress(all_done: &Receiver<Infallible>, begin: Instant, total: usize, next: &AtomicUsize) {
    const LONG: Duration = Duration::from_millis(800);
    const TICK: Duration = Duration::from_millis(100);
    let style = ProgressStyle::with_template("{wide_bar} {human_pos} of {human_len} transfers, {eta} left");
    let bar = ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::hidden())
        .with_style(style.expect("the template is well formed"));
    let mut shown = false;
    while all_done.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
        if !shown && begin.elapsed() >= LONG {
            bar.set_draw_target(ProgressDrawTarget::stderr());
            shown = true;
        }
        bar.set_position(next.load(Ordering::Relaxed).min(total) as u64);
    }
    bar.finish_and_clear();
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn every_item_is_applied_once() {
        for (count, threads) in [(0, 3), (1, 3), (1_000, 1), (1_000, 8)] {
            let items: Vec<u32> = (0..count).collect();
            let applied = Mutex::new(Vec::new());
            run(&items, threads, |item| applied.lock().unwrap().push(*item));
            let mut applied = applied.into_inner().unwrap();
            applied.sort_unstable();
            assert_eq!(applied, items);
        }
    }

    #[test]
    #[should_panic(expected = "a scoped thread panicked")]
    fn a_worker_that_panics_ends_the_run() {
        run(&[1, 2], 2, |item| assert_ne!(*item, 2));
    }
}
