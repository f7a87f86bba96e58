//! The program, as it is called.

#![forbid(unsafe_code)]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use roxmltree::Document;

fn peers(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_perkey-peers")).args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A file of this test alone.
fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn a_chart_is_drawn_from_a_file() {
    let (csv, svg) = (file("run.csv"), file("run.svg"));
    fs::write(&csv, "# two cores\nshape,title,contestant,ratio_to_perkey,goal_ratio\nu64,numbers,lockmap,2.0,1.3\n")
        .unwrap();
    let output = peers(&["--from", csv.to_str().unwrap(), "--svg", svg.to_str().unwrap()]);
    assert!(output.status.success(), "{}", said(&output));
    let text = fs::read_to_string(svg).unwrap();
    assert!(text.contains("two cores"));
    Document::parse(&text).unwrap();
}

#[test]
fn a_broken_file_is_named_and_its_chart_is_left_alone() {
    let (csv, svg) = (file("broken.csv"), file("broken.svg"));
    fs::write(&csv, "shape,title,contestant,ratio_to_perkey,goal_ratio\nu64,numbers,lockmap,fast,1.3\n").unwrap();
    fs::write(&svg, "as it was").unwrap();
    let output = peers(&["--from", csv.to_str().unwrap(), "--svg", svg.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(said(&output), format!("peers: {}:2: \"fast\" is not a number\n", csv.display()));
    assert_eq!(fs::read_to_string(svg).unwrap(), "as it was");
}

#[test]
#[cfg(target_os = "linux")]
fn everybody_is_weighed_in_a_process_of_its_own() {
    let csv = file("memory.csv");
    let output = peers(&["--memory", "--keys", "5000", "--csv", csv.to_str().unwrap()]);
    assert!(output.status.success(), "{}", said(&output));
    let table = String::from_utf8(output.stdout).unwrap();
    for name in ["perkey owners", "perkey mutex kept", "lockmap", "dashmap counted"] {
        assert!(table.contains(&format!("| {name} ")), "{table}");
    }
    assert!(fs::read_to_string(csv).unwrap().lines().any(|line| line.starts_with("perkey,5000,")));
}

#[test]
fn a_part_of_growth_is_measured_alone() {
    let csv = file("growth.csv");
    let output = peers(&["--growth=weights", "--quick", "--rounds", "1", "--csv", csv.to_str().unwrap()]);
    assert!(output.status.success(), "{}", said(&output));
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("1,000 permits") && !table.contains("waiters"), "{table}");
    assert!(fs::read_to_string(csv).unwrap().lines().any(|line| line.starts_with("weights-8,perkey,permit,1000,1,")));
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    for arguments in
        [&["--from", "run.csv"][..], &["--keys", "5"], &["--rounds", "5"], &["--memory", "--svg", "run.svg"]]
    {
        assert_eq!(peers(arguments).status.code(), Some(2), "{arguments:?}");
    }
}
