//! The example `catalog`, run as a program, and its own unit tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::SystemTime;

// `cargo test` builds the example as a program; asked to run the unit tests in it, it would build those instead. So
// they are run from here.
#[allow(dead_code, reason = "its `main` is not called here")]
#[path = "../examples/catalog/main.rs"]
mod example;

/// The example as a program. `cargo test` builds it and puts it beside the directory of the tests; `cargo test --test
/// catalog` does not, and must not pass with one that is missing or was built before the last change.
fn program() -> PathBuf {
    let test = std::env::current_exe().expect("this test is a file");
    let profile = test.parent().and_then(Path::parent).expect("tests are in <profile>/deps");
    let program = profile.join("examples").join(format!("catalog{}", std::env::consts::EXE_SUFFIX));
    let built = std::fs::metadata(&program).and_then(|program| program.modified());
    assert!(
        built.is_ok_and(|built| built >= last_change()),
        "{} is missing or old: build it with `cargo build --example catalog` and this test's profile",
        program.display()
    );
    program
}

/// When a source of the example or of the library was last changed.
fn last_change() -> SystemTime {
    ["examples/catalog", "src"]
        .iter()
        .flat_map(|directory| Path::new(env!("CARGO_MANIFEST_DIR")).join(directory).read_dir().expect("it is there"))
        .map(|file| file.expect("it can be listed"))
        .filter(|file| file.path().extension().is_some_and(|extension| extension == "rs"))
        .map(|file| file.metadata().and_then(|file| file.modified()).expect("files have a time"))
        .max()
        .expect("there are sources")
}

fn catalog(args: &[&str]) -> Output {
    Command::new(program()).args(args).stdin(Stdio::null()).output().expect("the example starts")
}

fn stdout(output: &Output) -> &str {
    str::from_utf8(&output.stdout).expect("the report is text")
}

/// What a run that passed printed.
#[track_caller]
fn passed(output: &Output) -> &str {
    let stdout = stdout(output);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(stdout.contains("\ncheck       passed: "), "{stdout}");
    assert!(output.stderr.is_empty(), "{output:?}");
    stdout
}

/// The first fault of a run whose check failed.
#[track_caller]
fn failed(output: &Output) -> &str {
    let stdout = stdout(output);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stdout.contains("\ncheck       FAILED: "), "{stdout}");
    assert_eq!(output.stderr, b"catalog: the check failed\n");
    stdout.split_once("the first: ").expect("the first fault is named").1
}

/// The names of the rows of the table.
fn modes(report: &str) -> Vec<&str> {
    let table = report.lines().skip_while(|line| !line.starts_with("fairness "));
    table.skip(1).map_while(|line| line.split_whitespace().next()).collect()
}

#[test]
fn no_half_built_catalog_is_seen() {
    let output = catalog(&["--reads", "20000", "--keys", "100", "--threads", "4", "--rebuilds", "20"]);
    let report = passed(&output);
    assert!(report.starts_with("catalog     100 products, rebuilt 20 times, under write_all\n"), "{report}");
    assert!(report.contains("\nthreads     4, 5 % of their calls write\neach run    20,000 reads\n\n"), "{report}");
    assert_eq!(modes(report), ["eventual", "fifo"]);
}

#[test]
fn one_product_that_everybody_wants() {
    for fairness in ["eventual", "fifo"] {
        let args = ["--reads", "3000", "--keys", "1", "--threads", "8", "--writes", "50", "--rebuilds", "10"];
        let output = catalog(&[&args[..], &["--write-time", "0", "--fairness", fairness]].concat());
        assert_eq!(modes(passed(&output)), [fairness]);
    }
}

#[test]
fn a_run_may_end_after_a_time() {
    let output = catalog(&["--seconds", "1", "--fairness", "fifo", "--threads", "2", "--rebuilds", "3"]);
    assert!(passed(&output).contains("\neach run    1 s\n"), "{output:?}");
}

#[test]
fn neither_writes_nor_rebuilds_are_needed() {
    passed(&catalog(&["--reads", "1000", "--writes", "0", "--rebuilds", "0"]));
}

/// The check must be able to fail. The run does not end before the last rebuild, and each waits 20 ms half way; all of them
/// pass unseen only if no other thread gets to run for a whole second.
#[test]
fn without_a_lock_half_built_catalogs_are_seen() {
    for how in ["without-lock", "key-by-key"] {
        let args = ["--reads", "100", "--threads", "4", "--rebuilds", "50", "--build-time", "20000", "--writes", "0"];
        let output = catalog(&[&args[..], &["--fairness", "fifo", "--rebuild", how]].concat());
        assert!(failed(&output).starts_with("product "), "{how}: {output:?}");
    }
}

#[test]
fn a_wrong_command_line_has_its_own_exit_code() {
    for args in [
        &["--rebuild", "twice"][..],
        &["--fairness", "none"],
        &["--keys", "0"],
        &["--reads", "5", "--seconds", "5"],
        &["products.csv"],
    ] {
        let output = catalog(args);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
        assert!(str::from_utf8(&output.stderr).is_ok_and(|message| message.contains("--help")), "{output:?}");
    }
}

#[test]
fn help_has_the_exit_codes_and_examples() {
    let output = catalog(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    for text in
        ["Usage: catalog", "Exit codes:", "Examples:", "--rebuild <REBUILD>", "without-lock", "--fairness <FAIRNESS>"]
    {
        assert!(stdout(&output).contains(text), "{text} is not in the help");
    }
}
