//! Running other programs.

use crate::workspace;
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::io::Read;
use std::process::{Command, Stdio};

/// What a program printed, both streams in order, and whether it succeeded.
pub struct Finished {
    /// Whether it exited with 0.
    pub success: bool,
    /// Everything it printed.
    pub output: String,
}

/// A command in the workspace's root, without input.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(workspace::root()).stdin(Stdio::null());
    command
}

/// Cargo, the one that runs us.
pub fn cargo() -> Command {
    let mut command = command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.env("CARGO_TERM_COLOR", "never");
    command
}

/// Runs a command to its end and keeps what it prints.
///
/// # Errors
/// When it cannot be started.
pub fn capture(mut command: Command) -> Result<Finished> {
    let name = command.get_program().to_string_lossy().into_owned();
    let (mut reader, writer) = std::io::pipe().context("no pipe")?;
    command.stdout(writer.try_clone().context("no pipe")?).stderr(writer);
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot start {name}; is it installed and on the PATH?"))?;
    // The command holds the pipe's writing ends; reading ends only once they are closed.
    drop(command);
    let mut output = Vec::new();
    reader.read_to_end(&mut output).with_context(|| format!("cannot read from {name}"))?;
    let status = child.wait().with_context(|| format!("cannot wait for {name}"))?;
    let output = String::from_utf8_lossy(&output).into_owned();
    Ok(Finished { success: status.success(), output })
}

/// Runs a command that must succeed.
///
/// # Errors
/// With what it printed, when it does not.
pub fn must(command: Command) -> Result<String> {
    let line = format!("{command:?}");
    let finished = capture(command)?;
    if !finished.success {
        bail!("{line} failed:\n{}", finished.output.trim_end());
    }
    Ok(finished.output)
}
