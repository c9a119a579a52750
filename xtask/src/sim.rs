//! `cargo xtask sim` and `cargo xtask alarm`: build the simulation, run it.

use crate::workspace;
use anyhow::{Context, Result};
use clap::Args;
use std::process::{Command, Stdio};

/// What `kvbaton-sim` is told.
#[derive(Args)]
pub struct Options {
    /// For the simulation; `cargo xtask sim help` lists what there is
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<String>,
}

/// Builds and runs a campaign, or what else the arguments say; its exit code.
///
/// # Errors
/// When cargo cannot be started.
pub fn sim(options: &Options) -> Result<u8> {
    run(&[], &options.arguments)
}

/// Builds the simulation with its planted bugs and searches for them; its exit code.
///
/// # Errors
/// When cargo cannot be started.
pub fn alarm(options: &Options) -> Result<u8> {
    let mut arguments = vec!["alarm".to_owned()];
    arguments.extend_from_slice(&options.arguments);
    run(&["--features", "planted-bugs"], &arguments)
}

/// The working directory stays the caller's, whose paths may be relative.
fn run(build: &[&str], arguments: &[String]) -> Result<u8> {
    let root = workspace::root();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["run", "--locked", "--profile", "sim", "--package", "kvbaton-transport-sim"]);
    cargo.args(["--bin", "kvbaton-sim", "--config", "build.rustflags=['--cfg','madsim']"]);
    cargo.arg("--manifest-path").arg(root.join("Cargo.toml"));
    cargo.arg("--target-dir").arg(root.join("target/sim"));
    cargo.args(build).arg("--").args(arguments).stdin(Stdio::inherit());
    // The variable would take the place of the flags above.
    cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    let status = cargo.status().context("cannot start cargo")?;
    // Killed by a signal: it did not do what it should.
    Ok(status.code().and_then(|it| u8::try_from(it).ok()).unwrap_or(2))
}
