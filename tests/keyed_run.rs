//! The example `keyed_run`, run as a program, and its own unit tests.

// `cargo test` builds the example as a program; asked to run the unit tests in it, it would build those instead. So
// they are run from here.
#[allow(dead_code, reason = "its `main` is not called here")]
#[path = "../examples/keyed_run/main.rs"]
mod example;

/// What is run here are commands for a Unix shell.
#[cfg(unix)]
mod program {
    use std::fs::{self, File};
    use std::io::Write;
    use std::os::unix::process::CommandExt;
    use std::path::{Path, PathBuf};
    use std::process::{Child, Command, ExitStatus, Output, Stdio};
    use std::thread;
    use std::time::{Duration, Instant, SystemTime};

    const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/keyed_run/jobs.tsv");

    /// Nothing here takes that long. It turns a hang into a failure.
    const WATCHDOG: Duration = Duration::from_secs(120);

    /// The example as a program. `cargo test` builds it and puts it beside the directory of the tests; `cargo test --test
    /// keyed_run` does not, and must not pass with one that is missing or was built before the last change.
    fn program() -> PathBuf {
        let test = std::env::current_exe().expect("this test is a file");
        let profile = test.parent().and_then(Path::parent).expect("tests are in <profile>/deps");
        let program = profile.join("examples/keyed_run");
        let built = fs::metadata(&program).and_then(|program| program.modified());
        assert!(
            built.is_ok_and(|built| built >= last_change()),
            "{} is missing or old: build it with `cargo build --example keyed_run` and this test's profile",
            program.display()
        );
        program
    }

    /// When a source of the example or of the library was last changed.
    fn last_change() -> SystemTime {
        ["examples/keyed_run", "src"]
            .iter()
            .flat_map(|directory| {
                Path::new(env!("CARGO_MANIFEST_DIR")).join(directory).read_dir().expect("it is there")
            })
            .map(|file| file.expect("it can be listed"))
            .filter(|file| file.path().extension().is_some_and(|extension| extension == "rs"))
            .map(|file| file.metadata().and_then(|file| file.modified()).expect("files have a time"))
            .max()
            .expect("there are sources")
    }

    /// A directory that the commands of one test run in. It stays if the test fails.
    struct Dir(PathBuf);

    impl Dir {
        fn new(test: &str) -> Self {
            let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("keyed_run-{}-{test}", std::process::id()));
            fs::create_dir_all(&path).expect("there is room");
            Self(path)
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.0.join(name), text).expect("there is room");
        }

        fn has(&self, name: &str) -> bool {
            self.0.join(name).exists()
        }

        fn read(&self, name: &str) -> String {
            fs::read_to_string(self.0.join(name)).expect("it is there, and text")
        }

        fn command(&self, args: &[&str]) -> Command {
            let mut command = Command::new(program());
            command.args(args).current_dir(&self.0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command
        }

        /// Runs the example in this directory, with `input` as its standard input.
        fn run(&self, args: &[&str], input: impl AsRef<[u8]>) -> Output {
            feed(self.command(args), input)
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            if !thread::panicking() {
                let _ = fs::remove_dir_all(&self.0);
            }
        }
    }

    fn feed(mut command: Command, input: impl AsRef<[u8]>) -> Output {
        let mut child = command.spawn().expect("the example starts");
        // All input is read before anything is printed. A program that ends early is no fault.
        let _ = child.stdin.take().expect("it is piped").write_all(input.as_ref());
        child.wait_with_output().expect("the example ends")
    }

    fn stdout(output: &Output) -> &str {
        str::from_utf8(&output.stdout).expect("it is text")
    }

    fn stderr(output: &Output) -> &str {
        str::from_utf8(&output.stderr).expect("it is text")
    }

    /// Checks the exit code and the summary, of which `counts` is all but the time, and returns what follows its first line.
    #[track_caller]
    fn ended<'a>(output: &'a Output, code: i32, counts: &str) -> &'a str {
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let (_, summary) = stderr(output).split_once(&format!("keyed_run: {counts} (")).unwrap_or_else(|| {
            panic!("{counts} is not in {:?}", stderr(output));
        });
        summary.split_once(" s)\n").expect("the time is in seconds").1
    }

    /// The message of a run that ended with `code` and ran nothing.
    #[track_caller]
    fn refused(output: &Output, code: i32) -> &str {
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
        stderr(output)
    }

    /// Shell code that waits until there is a file `name`.
    fn until(name: &str) -> String {
        let looks = WATCHDOG.as_millis() / 20;
        format!("n=0; until [ -e {name} ]; do n=$((n + 1)); [ $n -lt {looks} ] || exit 99; sleep 0.02; done")
    }

    /// Shell code that runs `work`, and fails if `limit` others of this `name` are running theirs.
    fn at_most(limit: usize, name: &str, work: &str) -> String {
        let slots: String = (0..limit).map(|slot| format!(" {slot}")).collect();
        let enter = format!("s=; for n in{slots}; do mkdir {name}.$n 2>/dev/null && s=$n && break; done");
        format!("{enter}; [ -n \"$s\" ] || exit 98; {work}; rmdir {name}.$s")
    }

    fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
        let begin = Instant::now();
        while !condition() {
            assert!(begin.elapsed() < WATCHDOG, "{what}: not after {WATCHDOG:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn the_sample_succeeds() {
        let dir = Dir::new("sample");
        let output = dir.run(&[SAMPLE, "--jobs", "4", "--tag", "--limit", "gamma=3"], "");
        assert_eq!(ended(&output, 0, "20 ran, 0 failed, 0 left"), "");
        let of_key = |key: &str| -> Vec<_> {
            stdout(&output).lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('\t')).collect()
        };
        assert_eq!(of_key("delta eu-west"), ["keys may have blanks", "and commands\ttabs"]);
        assert_eq!(of_key("gamma").len(), 6);
        let alpha = of_key("alpha");
        assert_eq!(alpha[..3], ["fetch the list", "list fetched", "unpack the list"]);
        assert_eq!(
            alpha[alpha.len() - 2..],
            ["clean up", "the last of alpha starts when all others of alpha have ended"]
        );
        assert!(stderr(&output).starts_with("beta\ta warning goes to stderr\n"), "{output:?}");
    }

    #[test]
    fn nothing_to_run_is_no_fault() {
        let dir = Dir::new("nothing");
        for input in ["", "\n# a\ttrue\n\n"] {
            assert_eq!(ended(&dir.run(&[], input), 0, "0 ran, 0 failed, 0 left"), "");
        }
    }

    /// Each command prints more than fits a pipe, to both, then waits until the other has, and does it again.
    #[test]
    fn outputs_are_kept_together_however_long() {
        let dir = Dir::new("together");
        let command = |own: &str, other: &str| {
            let print = format!("yes {own} | head -n 50000; yes {own} | head -n 50000 >&2");
            format!("{own}\t{print}; touch {own}; {}; {print}\n", until(other))
        };
        let output = dir.run(&["--jobs", "2"], command("left", "right") + &command("right", "left"));
        ended(&output, 0, "2 ran, 0 failed, 0 left");
        for text in [stdout(&output), stderr(&output).split_once("keyed_run:").unwrap().0] {
            let lines: Vec<_> = text.lines().collect();
            assert_eq!(lines.len(), 200_000);
            let (first, second) = lines.split_at(100_000);
            assert!(first.iter().all(|line| *line == first[0]), "the outputs are mixed");
            assert!(second.iter().all(|line| *line == second[0]), "the outputs are mixed");
            assert_ne!(first[0], second[0]);
        }
    }

    #[test]
    fn output_is_printed_byte_for_byte_and_tagged_if_asked_for() {
        let dir = Dir::new("tag");
        let rows = "k 1\tprintf 'a\\n\\377\\033b'\nk 1\tprintf c\nk 1\tprintf 'e\\n\\nf' >&2\n";
        let output = dir.run(&["-"], rows);
        assert_eq!(output.stdout, b"a\n\xff\x1bbc");
        assert!(output.stderr.starts_with(b"e\n\nfkeyed_run: 3 ran"), "{output:?}");
        let output = dir.run(&["-", "--tag"], rows);
        assert_eq!(output.stdout, b"k 1\ta\nk 1\t\xff\x1bb\nk 1\tc\n");
        assert!(output.stderr.starts_with(b"k 1\te\nk 1\t\nk 1\tf\nkeyed_run: 3 ran"), "{output:?}");
    }

    #[test]
    fn commands_of_a_key_run_one_at_a_time_in_order() {
        let dir = Dir::new("order");
        let command = |key: &str, n: usize| {
            let work = format!("echo {n} >> log.{key}; echo {n}; sleep 0.01; echo {n} >> log.{key}");
            format!("{key}\t{}\n", at_most(1, key, &work))
        };
        let rows: String = (0..10).flat_map(|n| ["a", "b", "c"].map(|key| command(key, n))).collect();
        let output = dir.run(&["--jobs", "8", "--tag"], rows);
        ended(&output, 0, "30 ran, 0 failed, 0 left");
        for key in ["a", "b", "c"] {
            let log: String = (0..10).map(|n| format!("{n}\n{n}\n")).collect();
            assert_eq!(dir.read(&format!("log.{key}")), log);
            let outputs: Vec<_> =
                stdout(&output).lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('\t')).collect();
            assert_eq!(outputs, (0..10).map(|n| n.to_string()).collect::<Vec<_>>(), "outputs of {key}");
        }
    }

    /// As many commands of a key as may run wait for each other, so that they end only if they run at once; then many
    /// more find out if they are too many.
    #[test]
    fn limits_of_keys_are_used_and_kept() {
        let dir = Dir::new("limits");
        let rows = |key: &str, limit: usize| -> String {
            let meet = (0..limit).map(|n| {
                let others: Vec<_> = (0..limit).map(|other| until(&format!("met.{key}.{other}"))).collect();
                format!("{key}\t{}\n", at_most(limit, key, &format!("touch met.{key}.{n}; {}", others.join("; "))))
            });
            let more = (0..10).map(|_| format!("{key}\t{}\n", at_most(limit, key, "sleep 0.01")));
            meet.chain(more).collect()
        };
        let input = rows("two", 2) + &rows("other=two", 2) + &rows("three", 3) + &rows("one", 1);
        let args = ["--jobs", "8", "--per-key", "2", "--limit", "three=3", "--limit", "one=1", "--limit", "none=7"];
        let output = dir.run(&args, input);
        ended(&output, 0, "48 ran, 0 failed, 0 left");
        assert!(stderr(&output).starts_with("keyed_run: --limit: no line has the key \"none\"\n"), "{output:?}");
    }

    #[test]
    fn jobs_bounds_them_all() {
        let dir = Dir::new("jobs");
        let rows: String = (0..40).map(|n| format!("{}\t{}\n", n % 13, at_most(3, "all", "sleep 0.01"))).collect();
        ended(&dir.run(&["--jobs", "3", "--per-key", "2"], rows), 0, "40 ran, 0 failed, 0 left");
    }

    /// With workers that take the next line and then wait for its key, both would be with `slow` for ever.
    #[test]
    fn a_slow_key_holds_up_no_other() {
        let dir = Dir::new("slow");
        let slow = format!("slow\t{}\n", until("last")) + &"slow\ttrue\n".repeat(200);
        let output = dir.run(&["--jobs", "2"], slow + "a\ttouch first\nb\t[ -e first ] && touch last\n");
        ended(&output, 0, "203 ran, 0 failed, 0 left");
    }

    #[test]
    fn failures_are_counted_and_named_and_stop_nothing() {
        let dir = Dir::new("failures");
        let rows = "a\texit 3\n\na\techo fine\nb\tkill -KILL $$\nb\tno-such-program\n";
        let output = dir.run(&["-", "--jobs", "1"], rows);
        let failures = ended(&output, 1, "4 ran, 3 failed, 0 left");
        assert_eq!(stdout(&output), "fine\n");
        let lines: Vec<_> = failures.lines().collect();
        assert_eq!(lines[0], "  failed: <stdin>:1: exit status: 3: \"a\\texit 3\"");
        assert!(lines[1].starts_with("  failed: <stdin>:4: signal: 9"), "{failures}");
        assert!(lines[1].ends_with(": \"b\\tkill -KILL $$\""), "{failures}");
        assert_eq!(lines[2..], ["  failed: <stdin>:5: exit status: 127: \"b\\tno-such-program\""]);

        dir.write("jobs.tsv", &"a\tfalse\n".repeat(12));
        let output = dir.run(&["jobs.tsv"], "");
        let failures = ended(&output, 1, "12 ran, 12 failed, 0 left");
        assert_eq!(failures.lines().count(), 11);
        assert!(failures.starts_with("  failed: jobs.tsv:1: exit status: 1: \"a\\tfalse\"\n"), "{failures}");
        assert!(failures.ends_with("  failed: and 2 more\n"), "{failures}");
    }

    #[test]
    fn commands_that_cannot_be_started_have_failed() {
        let dir = Dir::new("no-shell");
        let mut command = dir.command(&["-"]);
        command.env("PATH", &dir.0);
        let output = feed(command, "a\ttrue\na\ttrue\nb\ttrue\n");
        let failures = ended(&output, 1, "3 ran, 3 failed, 0 left");
        assert_eq!(failures.matches(": cannot be run: No such file or directory").count(), 3, "{failures}");
    }

    #[test]
    fn commands_do_not_read_the_input_of_the_program() {
        let dir = Dir::new("input");
        let output = dir.run(&["-"], "a\tcat\nb\techo b\n");
        ended(&output, 0, "2 ran, 0 failed, 0 left");
        assert_eq!(stdout(&output), "b\n");
    }

    #[test]
    fn a_bad_row_is_named_by_file_and_line_and_nothing_is_run() {
        let dir = Dir::new("bad-row");
        let output = dir.run(&["-"], "a\ttouch ran\r\n\r\n# comment\r\nb echo\r\n");
        let no_tab = "expected key<TAB>command, and there is no tab";
        assert_eq!(refused(&output, 3), format!("keyed_run: <stdin>:4: {no_tab}: \"b echo\"; nothing was run\n"));

        dir.write("bad.tsv", "a\ttouch ran\n \techo\n");
        let message = "keyed_run: bad.tsv:2: the key is empty: \" \\techo\"; nothing was run\n";
        for args in [&["bad.tsv"][..], &["bad.tsv", "--dry-run"]] {
            assert_eq!(refused(&dir.run(args, ""), 3), message);
        }

        let output = dir.run(&["-"], b"a\ttouch ran\nb\techo \xff\n");
        assert_eq!(
            refused(&output, 3),
            "keyed_run: <stdin>:2: not UTF-8 text: \"b\\techo \u{fffd}\"; nothing was run\n"
        );
        assert!(!dir.has("ran"));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let output = Dir::new("no-file").run(&["no-such-file.tsv"], "");
        assert!(refused(&output, 3).starts_with("keyed_run: no-such-file.tsv: "), "{output:?}");
    }

    #[test]
    fn a_wrong_command_line_has_its_own_exit_code() {
        let dir = Dir::new("usage");
        for args in [&["--jobs", "0"][..], &["--per-key", "0"], &["--limit", "db"], &["--limit", "db=0"], &["a", "b"]] {
            assert!(refused(&dir.run(args, "a\ttouch ran\n"), 2).contains("--help"), "{args:?}");
        }
        assert!(!dir.has("ran"));
    }

    #[test]
    fn help_has_the_exit_codes_and_examples() {
        let output = Dir::new("help").run(&["--help"], "");
        assert_eq!(output.status.code(), Some(0));
        for text in ["Usage: keyed_run", "Exit codes:", "130", "Examples:", "--limit <KEY=N>", "key<TAB>command"] {
            assert!(stdout(&output).contains(text), "{text} is not in the help");
        }
    }

    #[test]
    fn a_dry_run_prints_the_lines_and_runs_none() {
        let dir = Dir::new("dry");
        let output = dir.run(&["--dry-run"], "# x\n a b \ttouch\tran\r\n\nc\tprintf '\x1b[2J'; touch ran\n");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(stdout(&output), "a b\ttouch\tran\nc\tprintf '\\u{1b}[2J'; touch ran\n");
        assert!(output.stderr.is_empty(), "{output:?}");
        assert!(!dir.has("ran"));
    }

    #[test]
    fn a_reader_that_leaves_early_is_no_fault_and_all_is_run() {
        let dir = Dir::new("reader");
        let mut child = dir.command(&["--jobs", "2"]).spawn().expect("the example starts");
        drop(child.stdout.take());
        drop(child.stderr.take());
        let rows: String = (0..20).map(|n| format!("{}\techo out; echo err >&2; touch ran.{n}\n", n % 3)).collect();
        child.stdin.take().expect("it is piped").write_all(rows.as_bytes()).expect("it is read");
        assert_eq!(child.wait().expect("the example ends").code(), Some(0));
        assert!((0..20).all(|n| dir.has(&format!("ran.{n}"))));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_output_that_fails_stops_the_run() {
        let dir = Dir::new("full");
        let mut command = dir.command(&["--jobs", "1"]);
        command.stdout(File::create("/dev/full").expect("Linux has it"));
        let output = feed(command, "a\techo 1\n".to_owned() + &"a\ttrue\n".repeat(1_000));
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        assert!(
            stderr(&output).ends_with("keyed_run: <stdout>: No space left on device (os error 28)\n"),
            "{output:?}"
        );
        assert!(stderr(&output).contains("  left: and "), "{output:?}");
    }

    /// The example while it runs.
    struct Running<'a> {
        child: Child,
        dir: &'a Dir,
    }

    impl<'a> Running<'a> {
        /// Runs `rows` with what it prints in the files `out` and `err`.
        fn start(dir: &'a Dir, args: &[&str], rows: &str) -> Self {
            dir.write("jobs.tsv", rows);
            let file = |name| File::create(dir.0.join(name)).expect("there is room");
            let mut command = dir.command(args);
            // In a process group of its own, as a shell with a terminal does with each command.
            command.arg("jobs.tsv").process_group(0).stdin(Stdio::null()).stdout(file("out")).stderr(file("err"));
            Self { child: command.spawn().expect("the example starts"), dir }
        }

        fn wait_for_file(&self, name: &str) {
            wait_for(name, || self.dir.has(name));
        }

        fn wait_for_message(&self, message: &str) {
            wait_for(message, || self.dir.read("err").contains(message));
        }

        /// Sends a signal to the whole process group, as a terminal does.
        fn signal(&self, signal: &str) {
            let kill = format!("kill -{signal} -{}", self.child.id());
            let status = Command::new("sh").args(["-c", &kill]).status().expect("there is a shell");
            assert!(status.success(), "{kill}");
        }

        fn wait(&mut self) -> ExitStatus {
            let mut status = None;
            wait_for("the end of the example", || {
                status = self.child.try_wait().expect("it is a child");
                status.is_some()
            });
            status.expect("it has just ended")
        }
    }

    impl Drop for Running<'_> {
        fn drop(&mut self) {
            // Of a test that failed; one that has ended cannot be killed, which is no fault.
            let _ = self.child.kill();
        }
    }

    /// Two commands that run until there is a file `go`, and three that wait for their keys.
    fn two_that_wait_for_go() -> String {
        let work = |name: &str| format!("touch began.{name}; {}; touch ended.{name}; echo ended {name}", until("go"));
        format!("a\t{}\na\ttouch ran\nb\t{}\n# comment\nb\ttouch ran\na\ttouch ran\n", work("a"), work("b"))
    }

    /// Interrupts the two, with `more` lines that wait for room only, and checks what is left.
    fn is_interrupted_by(signal: &str, jobs: &str, more: usize) {
        let dir = Dir::new(&format!("interrupt-{signal}-{jobs}"));
        let rows = two_that_wait_for_go() + &"c\ttouch ran\n".repeat(more);
        let mut running = Running::start(&dir, &["--jobs", jobs], &rows);
        running.wait_for_file("began.a");
        running.wait_for_file("began.b");
        running.signal(signal);
        running.wait_for_message("keyed_run: stopping: waiting for running commands (2)");
        assert!(!dir.has("ended.a") && !dir.has("ended.b"));
        dir.write("go", "");
        assert_eq!(running.wait().code(), Some(130));
        assert!(dir.has("ended.a") && dir.has("ended.b"), "it did not wait for what ran");
        assert!(!dir.has("ran"), "it went on");
        let mut outputs: Vec<_> = dir.read("out").lines().map(str::to_owned).collect();
        outputs.sort_unstable();
        assert_eq!(outputs, ["ended a", "ended b"]);

        let err = dir.read("err");
        let (_, summary) = err.split_once("keyed_run: 2 ran, 0 failed, ").unwrap_or_else(|| panic!("{err}"));
        let left: Vec<_> = rows.lines().zip(1..).filter(|(row, _)| row.ends_with("\ttouch ran")).collect();
        let named = left.iter().take(10).map(|(row, line)| format!("  left: jobs.tsv:{line}: {row:?}"));
        let more = left.len().checked_sub(10).map(|more| format!("  left: and {more} more"));
        assert!(summary.starts_with(&format!("{} left (", left.len())), "{summary}");
        assert!(summary.lines().skip(1).eq(named.chain(more)), "{summary}");
    }

    #[test]
    fn ctrl_c_waits_for_what_runs_and_says_what_is_left() {
        is_interrupted_by("INT", "2", 10);
    }

    /// With more workers than keys some wait for a key, which nobody gives back until the two commands end.
    #[test]
    fn ctrl_c_ends_waits_for_keys() {
        is_interrupted_by("INT", "6", 0);
    }

    #[test]
    fn sigterm_does_what_ctrl_c_does() {
        is_interrupted_by("TERM", "2", 10);
    }

    #[test]
    fn a_second_ctrl_c_ends_the_program_and_leaves_what_runs() {
        let dir = Dir::new("twice");
        let mut running = Running::start(&dir, &["--jobs", "6"], &two_that_wait_for_go());
        running.wait_for_file("began.a");
        running.wait_for_file("began.b");
        running.signal("INT");
        running.wait_for_message("keyed_run: stopping: ");
        running.signal("INT");
        assert_eq!(running.wait().code(), Some(130));
        assert!(!dir.read("err").contains(" ran, "), "{}", dir.read("err"));
        assert!(!dir.has("ended.a") && !dir.has("ended.b"));
        dir.write("go", "");
        running.wait_for_file("ended.a");
        running.wait_for_file("ended.b");
        assert!(!dir.has("ran"));
    }
}
