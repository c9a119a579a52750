//! `cargo xtask fuzz`: the campaigns, built for speed.

use crate::run;
use anyhow::{Context, Result};
use clap::Args;
use std::process::{Command, Stdio};

/// Seconds of each campaign in the gate.
const SMOKE_SECONDS: &str = "2";
/// Failing inputs of the gate: kept inputs are run by the tests.
const SMOKE_CORPUS: &str = "target/fuzz-corpus";

/// Passed on to `kvbaton-fuzz`.
#[derive(Args)]
pub struct Options {
    /// `run`, `replay FILE…`, `list` or `help`, and what belongs to it; `run` by default.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Builds and runs the command; true when every rule held.
///
/// # Errors
/// When cargo cannot be started.
pub fn fuzz(options: &Options) -> Result<bool> {
    let mut command = kvbaton_fuzz();
    let first = options.arguments.first().map_or("", String::as_str);
    if !["run", "replay", "list", "help"].contains(&first) {
        command.arg("run");
    }
    command.args(&options.arguments).stdin(Stdio::inherit());
    let status = command.status().context("cannot start cargo")?;
    Ok(status.success())
}

/// A short run of every campaign from a fixed seed, for the gate.
pub fn smoke() -> Command {
    let mut command = kvbaton_fuzz();
    command.args(["run", "--seed", "1", "--seconds", SMOKE_SECONDS, "--corpus", SMOKE_CORPUS]);
    command
}

fn kvbaton_fuzz() -> Command {
    let mut command = run::cargo();
    command.args(["run", "--locked", "--quiet", "--release", "--package", "kvbaton-fuzz", "--"]);
    command
}
