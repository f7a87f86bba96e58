//! What a million live keys weigh. Each contestant is weighed in a process of its own: what an allocator keeps of one would
//! weigh on the next.

use std::fmt::Write;
use std::fs;
use std::hash::RandomState;
use std::io;
use std::process::Command;

use perkey::{KeyedLock, KeyedMutex, KeyedRwLock, KeyedSemaphore};

use crate::cells::{ABSENT, Table, thousands};
use crate::contestants::holding::{Counted, Holding, Kept, Lockmap, OneMap, owners};
use crate::contestants::names;
use crate::goals::Verdict;
use crate::watchdog::Watchdog;

/// "All" that comes back: what an allocator rounds up, and what the program itself needs meanwhile.
const BACK_WITHIN: i64 = 4 * MIB;
/// perkey's slot is in the table, lockmap's is boxed, and tables are half empty at worst.
const TIMES_LOCKMAP: f64 = 3.0;

const MIB: i64 = 1 << 20;

/// glibc gives large blocks straight back to the system, but calls more and more of them small as they come and go. Fixed where
/// it begins: what is measured is what tables give back, not what an allocator makes of it.
const LARGE_BLOCKS: (&str, &str) = ("MALLOC_MMAP_THRESHOLD_", "131072");

/// How one is weighed, and what perkey means to reach.
struct Weighed {
    name: &'static str,
    weigh: fn(u64) -> io::Result<Weight>,
    goals: &'static [Goal],
}

#[derive(Clone, Copy)]
enum Goal {
    /// A live key takes at most [`TIMES_LOCKMAP`] what it takes in lockmap.
    TimesLockmap,
    /// After release and `shrink_to_fit`, memory is within [`BACK_WITHIN`] of the start.
    Back,
}

#[rustfmt::skip]
const ALL: [Weighed; 12] = [
    Weighed { name: names::FLOOR_ONE_MAP, weigh: |keys| weigh(&OneMap::default(), keys), goals: &[] },
    Weighed { name: names::PERKEY, weigh: |keys| weigh(&KeyedLock::new(), keys), goals: &[Goal::TimesLockmap, Goal::Back] },
    Weighed { name: names::PERKEY_OWNERS, weigh: |keys| weigh(&owners(), keys), goals: &[Goal::Back] },
    Weighed { name: names::PERKEY_SEMAPHORE, weigh: |keys| weigh(&KeyedSemaphore::<u64, 4>::new(), keys), goals: &[Goal::TimesLockmap, Goal::Back] },
    Weighed { name: names::PERKEY_READ, weigh: |keys| weigh(&KeyedRwLock::new(), keys), goals: &[Goal::TimesLockmap, Goal::Back] },
    Weighed { name: names::PERKEY_MUTEX, weigh: |keys| weigh(&KeyedMutex::<u64, u64>::new(), keys), goals: &[Goal::Back] },
    Weighed { name: names::PERKEY_MUTEX_KEPT, weigh: |keys| weigh(&Kept::default(), keys), goals: &[Goal::Back] },
    Weighed { name: names::LOCKMAP, weigh: |keys| weigh(&Lockmap::with_hasher(RandomState::new()), keys), goals: &[] },
    Weighed { name: names::LOCKABLE, weigh: |keys| weigh(&lockable::LockPool::new(), keys), goals: &[] },
    Weighed { name: names::KEYED_LOCK, weigh: |keys| weigh(&keyed_lock::sync::KeyedLock::new(), keys), goals: &[] },
    Weighed { name: names::KEY_MUTEX, weigh: |keys| weigh(&key_mutex::KeyMutex::new(), keys), goals: &[] },
    Weighed { name: names::COUNTED, weigh: |keys| weigh(&Counted::default(), keys), goals: &[] },
];

/// Bytes of one process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Weight {
    keys: i64,
    /// What keeps a key; all of them are in the figures, in one `Vec`, until they are released.
    guard: i64,
    start: i64,
    held: i64,
    /// The most there was until all were held.
    peak: i64,
    released: i64,
    /// None where there is no call to shrink.
    shrunk: Option<i64>,
}

/// One contestant in this process, for the process that asked.
pub(crate) fn weigh_here(name: &str, keys: u64) -> io::Result<String> {
    let weighed = ALL.iter().find(|weighed| weighed.name == name);
    let weighed = weighed.ok_or_else(|| io::Error::other(format!("nobody is called {name:?}")))?;
    Ok((weighed.weigh)(keys)?.to_line())
}

/// Everybody, each in a process of its own.
pub(crate) fn weigh_all(keys: u64, watchdog: &Watchdog) -> io::Result<Vec<(&'static str, Weight)>> {
    let measured = ALL.iter().enumerate().map(|(number, weighed)| {
        eprint!("[{:2}/{}] {} ... ", number + 1, ALL.len(), weighed.name);
        watchdog.watch("memory", weighed.name);
        let weight = weigh_apart(weighed.name, keys)?;
        eprintln!("{:.1} bytes for each key", weight.for_each_key());
        Ok((weighed.name, weight))
    });
    measured.collect()
}

fn weigh_apart(name: &str, keys: u64) -> io::Result<Weight> {
    let mut program = Command::new(std::env::current_exe()?);
    let arguments = ["--memory", "--weigh-here", name, "--keys", &keys.to_string()];
    let out = program.args(arguments).env(LARGE_BLOCKS.0, LARGE_BLOCKS.1).output()?;
    let line = String::from_utf8_lossy(&out.stdout);
    Weight::from_line(line.trim()).filter(|_| out.status.success()).ok_or_else(|| {
        let said = String::from_utf8_lossy(&out.stderr);
        io::Error::other(format!("the process for {name} failed, {}: {line}{said}", out.status))
    })
}

fn weigh<H: Holding>(table: &H, keys: u64) -> io::Result<Weight> {
    // Its memory is there when the guards are.
    let mut guards = Vec::with_capacity(usize::try_from(keys).map_err(io::Error::other)?);
    let start = memory("VmRSS:")?;
    guards.extend((0..keys).map(|key| table.hold(key)));
    let (held, peak) = (memory("VmRSS:")?, memory("VmHWM:")?);
    guards.into_iter().for_each(|guard| table.give_back(guard));
    let released = memory("VmRSS:")?;
    let shrunk = table.shrink().then(|| memory("VmRSS:")).transpose()?;
    Ok(Weight { keys: keys as i64, guard: size_of::<H::Hold<'_>>() as i64, start, held, peak, released, shrunk })
}

/// A line of what Linux tells of this process, in bytes.
fn memory(line: &str) -> io::Result<i64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let kib = status.lines().find_map(|text| text.strip_prefix(line)?.split_whitespace().next()?.parse::<i64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| io::Error::other(format!("/proc/self/status has no line {line}")))
}

impl Weight {
    /// Of a key that is held, without its guard.
    fn for_each_key(&self) -> f64 {
        self.of_each(self.held)
    }

    fn of_each(&self, memory: i64) -> f64 {
        (memory - self.start - self.keys * self.guard) as f64 / self.keys as f64
    }

    fn to_line(self) -> String {
        let Self { keys, guard, start, held, peak, released, shrunk } = self;
        let shrunk = shrunk.map_or(ABSENT.to_owned(), |shrunk| shrunk.to_string());
        format!("{keys} {guard} {start} {held} {peak} {released} {shrunk}\n")
    }

    fn from_line(line: &str) -> Option<Self> {
        let [numbers @ .., shrunk] = &*line.split(' ').collect::<Vec<_>>() else { return None };
        let numbers: Vec<i64> = numbers.iter().map(|number| number.parse()).collect::<Result<_, _>>().ok()?;
        let [keys, guard, start, held, peak, released] = numbers[..] else { return None };
        let shrunk = if *shrunk == ABSENT { None } else { Some(shrunk.parse().ok()?) };
        Some(Self { keys, guard, start, held, peak, released, shrunk })
    }
}

impl Goal {
    fn text(self) -> String {
        match self {
            Self::TimesLockmap => format!("≤ {TIMES_LOCKMAP:.0} × lockmap"),
            Self::Back => format!("back within {} MiB", BACK_WITHIN / MIB),
        }
    }

    fn verdict(self, weight: &Weight, lockmap: &Weight) -> Verdict {
        match self {
            Self::TimesLockmap => {
                let ratio = weight.for_each_key() / lockmap.for_each_key();
                Verdict { met: ratio <= TIMES_LOCKMAP, measured: format!("{ratio:.2} ×") }
            }
            Self::Back => {
                let rest = weight.shrunk.unwrap_or(weight.released) - weight.start;
                Verdict { met: rest <= BACK_WITHIN, measured: format!("{} MiB", mib(rest)) }
            }
        }
    }
}

/// For people: rounded figures.
pub(crate) fn markdown(weights: &[(&'static str, Weight)]) -> String {
    let headings = [
        "contestant",
        "keys held",
        "bytes/key",
        "at the peak",
        "guard, bytes",
        "start, MiB",
        "held, MiB",
        "released",
        "shrunk",
        "goal",
        "met?",
    ];
    let mut table = Table::new(&headings);
    for (name, weight) in weights {
        let (goal, met) = goals(name, weights);
        table.push(vec![
            (*name).into(),
            thousands(weight.keys as u64),
            format!("{:.1}", weight.for_each_key()),
            format!("{:.1}", weight.of_each(weight.peak)),
            weight.guard.to_string(),
            mib(weight.start),
            mib(weight.held),
            mib(weight.released),
            weight.shrunk.map_or(ABSENT.into(), mib),
            goal,
            met,
        ]);
    }
    table.markdown()
}

/// For programs: bytes.
pub(crate) fn csv(weights: &[(&'static str, Weight)]) -> String {
    let headings = [
        "contestant",
        "keys",
        "bytes_per_key",
        "peak_bytes_per_key",
        "guard_bytes",
        "start_bytes",
        "held_bytes",
        "peak_bytes",
        "released_bytes",
        "shrunk_bytes",
        "goal",
        "met",
    ];
    let mut table = Table::new(&headings);
    for (name, weight) in weights {
        let (goal, met) = goals(name, weights);
        table.push(vec![
            (*name).into(),
            weight.keys.to_string(),
            format!("{:.3}", weight.for_each_key()),
            format!("{:.3}", weight.of_each(weight.peak)),
            weight.guard.to_string(),
            weight.start.to_string(),
            weight.held.to_string(),
            weight.peak.to_string(),
            weight.released.to_string(),
            weight.shrunk.map_or(ABSENT.into(), |shrunk| shrunk.to_string()),
            goal,
            met,
        ]);
    }
    table.csv()
}

/// Goals met, goals measured, and a line for each that was missed.
pub(crate) fn summary(weights: &[(&'static str, Weight)]) -> String {
    let (mut met, mut measured, mut missed) = (0, 0, String::new());
    for (name, _) in weights {
        for (goal, verdict) in judged(name, weights) {
            measured += 1;
            if verdict.met {
                met += 1;
            } else {
                let _ = writeln!(missed, "  {name}: {}: {verdict}", goal.text());
            }
        }
    }
    format!("{met} of {measured} goals met\n{missed}")
}

/// The goals of a row, and what the run says about each.
fn goals(name: &str, weights: &[(&'static str, Weight)]) -> (String, String) {
    let judged = judged(name, weights);
    let (goals, verdicts): (Vec<String>, Vec<String>) =
        judged.iter().map(|(goal, verdict)| (goal.text(), verdict.to_string())).unzip();
    (goals.join("; "), verdicts.join("; "))
}

fn judged(name: &str, weights: &[(&'static str, Weight)]) -> Vec<(Goal, Verdict)> {
    let of = |name: &str| weights.iter().find(|(other, _)| *other == name).map(|(_, weight)| weight);
    let goals = ALL.iter().find(|weighed| weighed.name == name).map_or(&[] as &[Goal], |weighed| weighed.goals);
    let (Some(weight), Some(lockmap)) = (of(name), of(names::LOCKMAP)) else { return vec![] };
    goals.iter().map(|&goal| (goal, goal.verdict(weight, lockmap))).collect()
}

fn mib(bytes: i64) -> String {
    format!("{:.1}", bytes as f64 / MIB as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_comes_through_a_line() {
        let weight = Weight { keys: 10, guard: 40, start: 100, held: 1_500, peak: 2_000, released: 300, shrunk: None };
        assert_eq!(Weight::from_line(weight.to_line().trim()), Some(weight));
        let weight = Weight { shrunk: Some(120), ..weight };
        assert_eq!(Weight::from_line(weight.to_line().trim()), Some(weight));
        for broken in ["", "1 2", "1 2 3 4 5 6 x", "1 2 3 4 5 x -", "1 2 3 4 5 6 7 8"] {
            assert_eq!(Weight::from_line(broken), None, "{broken}");
        }
    }

    #[test]
    fn guards_are_no_part_of_a_key() {
        let weight = Weight { keys: 10, guard: 40, start: 100, held: 1_500, peak: 2_000, released: 300, shrunk: None };
        assert_eq!(weight.for_each_key(), 100.0);
        assert_eq!(weight.of_each(weight.peak), 150.0);
    }

    #[test]
    fn goals_are_judged() {
        let lockmap = Weight { keys: 10, guard: 0, start: 0, held: 1_000, peak: 0, released: 0, shrunk: None };
        let light = Weight { held: 3_000, shrunk: Some(BACK_WITHIN), ..lockmap };
        let heavy = Weight { held: 3_010, shrunk: Some(BACK_WITHIN + 1), ..lockmap };
        for goal in [Goal::TimesLockmap, Goal::Back] {
            assert!(goal.verdict(&light, &lockmap).met);
            assert!(!goal.verdict(&heavy, &lockmap).met);
        }
        let weights = [(names::PERKEY, heavy), (names::LOCKMAP, lockmap)];
        assert!(markdown(&weights).contains("NO, 3.01 ×; NO, 4.0 MiB"), "{}", markdown(&weights));
        assert_eq!(summary(&weights).lines().next(), Some("0 of 2 goals met"));
        assert!(csv(&weights).starts_with("contestant,keys,"));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn everybody_can_be_weighed() {
        for weighed in &ALL {
            let weight = (weighed.weigh)(10_000).unwrap();
            assert!(weight.held > 0 && weight.peak > 0, "{}: {weight:?}", weighed.name);
        }
    }
}
