//! `cargo xtask model-check`: the model checker, optimized.

use crate::run;
use anyhow::{Context, Result};
use clap::Args;

/// What the model checker gets.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct Options {
    /// Its arguments; `--help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Builds and runs it; true when every rule holds.
///
/// # Errors
/// When it cannot be started.
pub fn model_check(options: &Options) -> Result<bool> {
    let mut command = run::cargo();
    command.args(["run", "--locked", "--release", "--quiet", "--package", "kvbaton-model-check"]);
    command.arg("--").args(&options.arguments);
    let status = command.status().context("cannot start cargo")?;
    if status.code() == Some(2) {
        std::process::exit(2);
    }
    Ok(status.success())
}
