//! Cargo's extensions that a command needs, installed into `target/tools` once.

use crate::{run, workspace};
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One extension, at the version we want.
pub struct Tool {
    name: &'static str,
    version: &'static str,
    /// Makes the program say its version.
    ask: &'static [&'static str],
}

/// Licences, sources, versions.
pub const DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2", ask: &["--version"] };
/// Mutation testing.
pub const MUTANTS: Tool =
    Tool { name: "cargo-mutants", version: "27.1.0", ask: &["mutants", "--version"] };

impl Tool {
    /// The program, installed if it is not there; or why it cannot be.
    ///
    /// # Errors
    /// When cargo cannot be started.
    pub fn program(&self) -> Result<Result<PathBuf, String>> {
        let Self { name, version, .. } = self;
        let program = workspace::tools().join("bin").join(name);
        if self.is_wanted(&program) {
            return Ok(Ok(program));
        }
        println!("  installing {name} {version} into target/tools, once");
        let finished = run::capture(self.install())?;
        if finished.success {
            return Ok(Ok(program));
        }
        println!("{}", finished.output.trim_end());
        Ok(Err(format!("{name} {version} could not be installed")))
    }

    /// Whether the program is there, and the version we want.
    fn is_wanted(&self, program: &Path) -> bool {
        let mut version = run::command(program);
        version.args(self.ask);
        run::capture(version).is_ok_and(|it| it.success && it.output.trim().ends_with(self.version))
    }

    /// An unoptimized build: a tool's own release profile (whole-program LTO) takes several
    /// times longer to build than it ever saves here.
    fn install(&self) -> Command {
        let mut command = run::cargo();
        command.args(["install", "--locked", "--debug", self.name, "--version", self.version]);
        command.arg("--root").arg(workspace::tools());
        command.arg("--target-dir").arg(workspace::tools().join("build"));
        command.env("CARGO_PROFILE_DEV_DEBUG", "false").env_remove("RUSTFLAGS");
        command
    }
}
