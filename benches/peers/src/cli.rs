//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Parser, value_parser};

use crate::growth::{self, Part};
use crate::loads::Effort;
use crate::measure::Plan;
use crate::shapes;

const DETAILS: &str = "\
Output:
  One Markdown table on standard output, and beside it, where they are asked
  for, CSV and a chart in files; progress, and the goals that were missed, on
  standard error.

  ns/op is the median of the rounds: a lock and an unlock in the wall-clock time
  of all threads together. In the shapes `add-*` the lock owns a counter, which
  is got or inserted, and added to; in `two-keys` a `lock_keys` is of two; in
  `rw-1-*` and `rw-1000-*` one call of twenty writes its key, the others read it;
  `rw-all` has no goal, only the figures. In the shapes of one thread the empty loop's time is
  taken off. `/ perkey` is the median of the ratios within each round: above 1,
  perkey is faster. The longest wait and the least share of any thread are
  medians of rounds of their own (in brackets: the longest of all rounds); a
  share of 1 is a fair one. `met?` is computed from this run.

  Use it on a machine that does nothing else: all waits are the scheduler's too.

Chart (--svg):
  A row for each shape with peers, a dot for each of them where its time is in
  times of perkey's, on a logarithmic axis; a bar of its colour is its goal. What
  differs only in perkey's own calls is not in it. --from draws it again from
  what --csv wrote, byte for byte.

Memory (--memory):
  A million u64 (or --keys) locked at once and kept, each contestant in a
  process of its own; Linux only. `bytes/key` is what the process grew by,
  without the guards, which are in one Vec; `at the peak` is the same of the
  most there was, when a table that grew was there twice. `released` and
  `shrunk` are the whole process again, beside `start`; a dash where a table has
  no call to shrink. `perkey mutex` is a KeyedMutex with values, held; `perkey
  mutex kept` has them idle. Tables double, so bytes/key go up and down with the
  number of keys. glibc is told to give every block of 128 KiB back to the
  system (MALLOC_MMAP_THRESHOLD_): it may keep more of what is given back to it.

Growth (--growth, about half an hour, most of it to fill tables with 10,000,000
keys; a good minute with --quick, which does without these):
  Tables with a column for each number of threads, keys, waiters or permits, and
  the ratio of two columns: the median of the ratios within each round. Where a
  peer is missing, it has no such call. `live`: the empty loop, some 2 ns, is not
  taken off. `waiters`: the time from the moment at which all of them shall give
  up until the last has returned, and what the ratio is for each waiter; what of
  that is the system's, waking so many threads, is the floor's.

Exit codes:
  0  measured, whatever the goals
  1  output failed, or --from is no such file, or a process of --memory failed
  2  the command line is wrong
  3  a round did not end";

/// Measures perkey beside other per-key locks.
#[derive(Debug, Parser)]
#[command(name = "peers", after_long_help = DETAILS)]
pub(crate) struct Cli {
    /// Everything in a good minute, also of --memory and --growth: few and short rounds, so that a few per cent mean nothing
    #[arg(long)]
    quick: bool,

    /// About seven minutes [default]
    #[arg(long, conflicts_with = "quick")]
    full: bool,

    /// Only this shape; may be given several times
    #[arg(long = "shape", value_name = "NAME", value_parser = shape_names(), hide_possible_values = true)]
    pub(crate) shapes: Vec<String>,

    /// Prints the shapes and the contestants, and measures nothing
    #[arg(long)]
    pub(crate) list: bool,

    /// Weighs tables with many keys held at once, instead
    #[arg(long, conflicts_with_all = ["shapes", "list"])]
    pub(crate) memory: bool,

    /// With --memory: so many keys [default: 1000000, or 200000 with --quick]
    #[arg(long, value_name = "N", requires = "memory", value_parser = value_parser!(u64).range(1..=100_000_000))]
    keys: Option<u64>,

    /// One contestant of --memory in this process, for the process that measures all
    #[arg(long, value_name = "NAME", requires = "memory", hide = true)]
    pub(crate) weigh_here: Option<String>,

    /// Measures how cost grows, instead: all of it, or these parts
    #[arg(long, value_name = "PART", num_args = 0.., value_delimiter = ',', conflicts_with_all = ["shapes", "list", "memory"])]
    pub(crate) growth: Option<Vec<Part>>,

    /// With --growth: so many rounds [default: 9, or 3 with --quick]
    #[arg(long, value_name = "N", requires = "growth", value_parser = value_parser!(u16).range(1..))]
    rounds: Option<u16>,

    /// Writes the table to FILE as CSV too, below what it was measured on in lines with a `#`
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,

    /// Draws a chart into FILE as SVG: for each shape with peers, how many times perkey's time each peer takes
    #[arg(long, value_name = "FILE", conflicts_with_all = ["memory", "growth"])]
    pub(crate) svg: Option<PathBuf>,

    /// Draws it from what --csv wrote earlier, and measures nothing
    #[arg(long, value_name = "CSV", requires = "svg", conflicts_with_all = ["quick", "full", "shapes", "csv", "list", "memory", "growth"])]
    pub(crate) from: Option<PathBuf>,
}

fn shape_names() -> PossibleValuesParser {
    PossibleValuesParser::new(shapes::all().into_iter().map(|shape| shape.name))
}

impl Cli {
    pub(crate) fn growth_plan(&self) -> growth::Plan {
        let plan = if self.quick { growth::Plan::quick() } else { growth::Plan::full() };
        growth::Plan { rounds: self.rounds.map_or(plan.rounds, usize::from), ..plan }
    }

    /// How many keys are held at once to weigh them.
    pub(crate) fn keys(&self) -> u64 {
        self.keys.unwrap_or(if self.quick { 200_000 } else { 1_000_000 })
    }

    pub(crate) fn plan(&self) -> Plan {
        if self.quick {
            Plan {
                rounds: 5,
                wait_rounds: 2,
                effort: Effort {
                    operations: 200_000,
                    window: Duration::from_millis(40),
                    wait_window: Duration::from_millis(60),
                },
            }
        } else {
            Plan {
                rounds: 11,
                wait_rounds: 3,
                effort: Effort {
                    operations: 500_000,
                    window: Duration::from_millis(150),
                    wait_window: Duration::from_millis(250),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
