//! The example `ledger`, run as a program, and its own unit tests.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::SystemTime;

// `cargo test` builds the example as a program; asked to run the unit tests in it, it would build those instead. So
// they are run from here.
#[allow(dead_code, reason = "its `main` is not called here")]
#[path = "../examples/ledger/main.rs"]
mod example;

const SAMPLE: &str = "examples/ledger/transfers.csv";

/// The example as a program. `cargo test` builds it and puts it beside the directory of the tests; `cargo test --test
/// ledger` does not, and must not pass with one that is missing or was built before the last change.
fn program() -> PathBuf {
    let test = std::env::current_exe().expect("this test is a file");
    let profile = test.parent().and_then(Path::parent).expect("tests are in <profile>/deps");
    let program = profile.join("examples").join(format!("ledger{}", std::env::consts::EXE_SUFFIX));
    let built = std::fs::metadata(&program).and_then(|program| program.modified());
    assert!(
        built.is_ok_and(|built| built >= last_change()),
        "{} is missing or old: build it with `cargo build --example ledger` and this test's profile",
        program.display()
    );
    program
}

/// When a source of the example or of the library was last changed.
fn last_change() -> SystemTime {
    ["examples/ledger", "src"]
        .iter()
        .flat_map(|directory| Path::new(env!("CARGO_MANIFEST_DIR")).join(directory).read_dir().expect("it is there"))
        .map(|file| file.expect("it can be listed"))
        .filter(|file| file.path().extension().is_some_and(|extension| extension == "rs"))
        .map(|file| file.metadata().and_then(|file| file.modified()).expect("files have a time"))
        .max()
        .expect("there are sources")
}

/// Runs the example in the directory of the package, with `input` as its standard input.
fn ledger_with_input(args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(program())
        .args(args)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the example starts");
    // All of these inputs fit a pipe, or are read before anything is printed. A program that ends early is no fault.
    let _ = child.stdin.take().expect("it is piped").write_all(input);
    child.wait_with_output().expect("the example ends")
}

fn ledger(args: &[&str]) -> Output {
    ledger_with_input(args, b"")
}

fn stdout(output: &Output) -> &str {
    str::from_utf8(&output.stdout).expect("the report is text")
}

/// What a run that passed printed.
#[track_caller]
fn passed(output: &Output) -> &str {
    let stdout = stdout(output);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(stdout.contains("check       passed"), "{stdout}");
    assert!(output.stderr.is_empty(), "{output:?}");
    stdout
}

/// The message of a run that ended with `code` and printed no report.
#[track_caller]
fn refused(output: &Output, code: i32) -> &str {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    str::from_utf8(&output.stderr).expect("the message is text")
}

/// The lines of the report that do not depend on the time or on what was asked for.
fn balances(report: &str) -> Vec<&str> {
    let lines = report.lines().filter(|line| !line.starts_with("busiest"));
    lines.filter(|line| line.starts_with("transfers") || line.contains("acc-")).collect()
}

#[test]
fn all_locks_and_states_come_to_the_same_balances_of_the_sample() {
    let keyed = ledger(&[SAMPLE]);
    let global = ledger(&[SAMPLE, "--lock", "global", "--threads", "3"]);
    let mutex = ledger(&[SAMPLE, "--state", "mutex", "--threads", "3"]);
    let one_thread = ledger(&[SAMPLE, "--threads", "1", "--lock", "none"]);
    let expected = balances(passed(&keyed));
    assert_eq!(expected[0], "transfers   10,000 between 500 accounts");
    assert_eq!(expected.len(), 1 + 10);
    assert_eq!(balances(passed(&global)), expected);
    assert_eq!(balances(passed(&mutex)), expected);
    assert_eq!(balances(passed(&one_thread)), expected);
}

#[test]
fn waiting_inside_the_lock_loses_nothing() {
    let busy = ["--generate", "500", "--accounts", "5", "--work", "100", "--threads", "8"];
    let reports = ["atomics", "mutex"].map(|state| ledger(&[&busy[..], &["--state", state]].concat()));
    let [atomics, mutex] = reports.each_ref().map(|report| balances(passed(report)));
    assert_eq!(atomics, mutex);
}

#[test]
fn accounts_in_a_mutex_count_their_transfers() {
    let sample =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(SAMPLE)).expect("the sample is there");
    let of_busiest = sample.lines().filter(|line| line.contains("acc-0000")).count();
    let output = ledger(&[SAMPLE, "--state", "mutex", "--threads", "8"]);
    let report = passed(&output);
    assert!(report.contains("\nthreads     8, each account in its own lock\n"), "{report}");
    assert!(report.contains(&format!("\nbusiest     acc-0000, in {of_busiest} transfers\n")), "{report}");
    let output = ledger(&[SAMPLE]);
    assert!(!passed(&output).contains("busiest"), "{output:?}");
}

#[test]
fn the_generator_makes_the_sample_again() {
    let output = ledger(&["--generate", "10000", "--accounts", "500", "--print"]);
    assert_eq!(output.status.code(), Some(0));
    let sample =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(SAMPLE)).expect("the sample is there");
    // By lines, since a checkout may have turned the ends of lines into CRLF.
    assert!(stdout(&output).lines().eq(sample.lines()), "the sample is not what the generator makes");
}

#[test]
fn standard_input_is_read_with_and_without_a_dash() {
    let rows = b"from,to,amount\r\nalice,bob,1000\r\nbob,bob,5\r\n\r\n\"carol, jr\",alice,1";
    for args in [&[][..], &["-"], &["--state", "mutex"]] {
        let output = ledger_with_input(args, rows);
        let report = passed(&output);
        assert!(report.starts_with("transfers   3 between 3 accounts\n"), "{report}");
        assert!(report.contains("\n\n1,000  bob\n   -1  carol, jr\n -999  alice\n\n"), "{report}");
    }
}

#[test]
fn no_transfers_at_all_are_no_fault() {
    for state in ["atomics", "mutex"] {
        let output = ledger(&["-", "--state", state]);
        assert!(passed(&output).starts_with("transfers   0 between 0 accounts\n"), "{output:?}");
    }
    passed(&ledger(&["--generate", "0"]));
}

#[test]
fn top_says_how_many_balances_are_printed() {
    for (top, printed) in [("0", 0), ("3", 3), ("1000", 4)] {
        let output = ledger(&["--generate", "100", "--accounts", "4", "--top", top]);
        assert_eq!(balances(passed(&output)).len(), 1 + printed, "--top {top}");
    }
}

#[test]
fn a_bad_row_is_named_by_file_and_line() {
    let output = ledger_with_input(&["-"], b"from,to,amount\n\na,b,1\na,b,ten\na,b,2\n");
    let amount = "the amount is not a whole number from 1 to 9223372036854775807";
    assert_eq!(refused(&output, 3), format!("ledger: <stdin>:4: {amount}: \"a,b,ten\"; nothing was applied\n"));

    let output = ledger(&["Cargo.toml"]);
    let message = "expected 3 fields, from,to,amount: \"[package]\"";
    assert_eq!(refused(&output, 3), format!("ledger: Cargo.toml:1: {message}; nothing was applied\n"));
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let output = ledger(&["examples/no-such-file.csv"]);
    assert!(refused(&output, 3).starts_with("ledger: examples/no-such-file.csv: "), "{output:?}");
}

#[test]
fn a_wrong_command_line_has_its_own_exit_code() {
    for args in [
        &["--lock", "padlock"][..],
        &["--state", "solid"],
        &["--generate", "many"],
        &[SAMPLE, "--generate", "5"],
        &["--accounts", "5"],
    ] {
        assert!(refused(&ledger(args), 2).contains("--help"), "{args:?}");
    }
}

#[test]
fn another_lock_than_the_accounts_own_is_refused_and_the_way_out_named() {
    for lock in ["global", "none"] {
        let output = ledger(&[SAMPLE, "--lock", lock, "--state", "mutex"]);
        let message = refused(&output, 2);
        let both = format!("--state mutex cannot be used with --lock {lock}");
        for text in [&both, "leave out --lock, or use --state atomics", "--help"] {
            assert!(message.contains(text), "{text} is not in: {message}");
        }
    }
}

#[test]
fn help_has_the_exit_codes_and_examples() {
    let output = ledger(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    for text in ["Usage: ledger", "Exit codes:", "Examples:", "--lock <LOCK>", "--state <STATE>", "from,to,amount"] {
        assert!(stdout(&output).contains(text), "{text} is not in the help");
    }
}

/// The check must be able to fail. All transfers go from one account to another, and each reads 20 ms before it writes;
/// no money is lost only if each begins after the one before has ended, that is if no second thread gets to run for a
/// whole second.
#[test]
fn without_a_lock_the_check_fails() {
    let rows = "a,b,1\n".repeat(50);
    let output = ledger_with_input(&["-", "--lock", "none", "--work", "20000", "--threads", "8"], rows.as_bytes());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stdout(&output).contains("check       FAILED"), "{output:?}");
    assert_eq!(output.stderr, b"ledger: the check failed\n");
}

#[test]
fn a_reader_that_leaves_early_is_no_fault() {
    let mut child = Command::new(program())
        .args(["--generate", "200000", "--print"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the example starts");
    // Far more than fits a pipe, and nobody reads it.
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("the example ends");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}
