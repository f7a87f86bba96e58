//! Hands the compiler's version to the program, for the head of its output.

#![forbid(unsafe_code)]

use std::env;
use std::process::Command;

fn main() {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output().ok().and_then(|out| String::from_utf8(out.stdout).ok());
    println!("cargo::rustc-env=PEERS_RUSTC={}", version.as_deref().unwrap_or("rustc unknown").trim());
    println!("cargo::rerun-if-changed=build.rs");
}
