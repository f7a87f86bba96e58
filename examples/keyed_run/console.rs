//! Everything that is printed while commands run: their output, and the progress.

use std::borrow::Cow;
use std::io::{self, Write};
use std::process::Output;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::complain;

pub(crate) struct Console {
    begin: Instant,
    bar: ProgressBar,
    bar_shown: bool,
    stop_announced: bool,
    tag: bool,
    /// The first error of stdout. There is no second: nothing is printed to it any more.
    error: Option<io::Error>,
}

impl Console {
    pub(crate) fn new(jobs: usize, tag: bool) -> Self {
        let style = ProgressStyle::with_template("{wide_bar} {human_pos} of {human_len} commands, {msg}, {elapsed}");
        let bar = ProgressBar::with_draw_target(Some(jobs as u64), ProgressDrawTarget::hidden())
            .with_style(style.expect("the template is well formed"));
        Self { begin: Instant::now(), bar, bar_shown: false, stop_announced: false, tag, error: None }
    }

    /// Prints what a command printed, in one go. That nobody reads it any more (`| head`) is no fault: what the commands
    /// do matters too.
    pub(crate) fn print(&mut self, key: &str, output: &Output) -> Result<(), ()> {
        let text = |output| if self.tag { Cow::from(tagged(key, output)) } else { Cow::from(output) };
        let result = self.bar.suspend(|| {
            // There is no place to report an error of stderr.
            let _ = io::stderr().write_all(&text(&output.stderr));
            if self.error.is_some() {
                return Ok(());
            }
            let mut out = io::stdout().lock();
            out.write_all(&text(&output.stdout)).and_then(|()| out.flush())
        });
        let Err(error) = result else { return Ok(()) };
        let nobody_reads = error.kind() == io::ErrorKind::BrokenPipe;
        self.error = Some(error);
        if nobody_reads { Ok(()) } else { Err(()) }
    }

    /// Shows a bar if that takes long and stderr is a terminal, and says once that it is going to stop.
    pub(crate) fn tick(&mut self, ran: usize, running: usize, stopping: bool) {
        const LONG: Duration = Duration::from_millis(800);
        if !self.bar_shown && self.begin.elapsed() >= LONG {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.bar_shown = true;
        }
        self.bar.set_message(format!("{running} running"));
        self.bar.set_position(ran as u64);
        if stopping && !self.stop_announced {
            self.stop_announced = true;
            let message = format!(
                "stopping: waiting for running commands ({running}); Ctrl-C now ends at once and leaves them running"
            );
            self.bar.suspend(|| complain(&message));
        }
    }

    /// How long it took, and what was wrong with stdout.
    pub(crate) fn finish(self) -> (Duration, Option<io::Error>) {
        self.bar.finish_and_clear();
        (self.begin.elapsed(), self.error.filter(|error| error.kind() != io::ErrorKind::BrokenPipe))
    }
}

/// `output` with `key` and a tab before each line. The last line is ended, so that no other tag gets into it.
fn tagged(key: &str, output: &[u8]) -> Vec<u8> {
    let mut tagged = Vec::with_capacity(output.len());
    for line in output.split_inclusive(|byte| *byte == b'\n') {
        tagged.extend_from_slice(key.as_bytes());
        tagged.push(b'\t');
        tagged.extend_from_slice(line);
    }
    if tagged.last().is_some_and(|byte| *byte != b'\n') {
        tagged.push(b'\n');
    }
    tagged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_tagged_and_the_last_one_ended() {
        let cases: [(&[u8], &[u8]); 5] = [
            (b"", b""),
            (b"x", b"k\tx\n"),
            (b"x\n", b"k\tx\n"),
            (b"x\n\n\xff", b"k\tx\nk\t\nk\t\xff\n"),
            (b"\n", b"k\t\n"),
        ];
        for (output, expected) in cases {
            assert_eq!(tagged("k", output), expected, "{output:?}");
        }
    }
}
