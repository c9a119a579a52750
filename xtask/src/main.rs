//! `cargo xtask`: the commands that need more than cargo.

mod fuzz;
mod gate;
mod report;
mod run;
mod setup;
mod tally;
mod workspace;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// What developers of kvbaton run beside cargo itself.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Every change:      cargo xtask test --quick
Before it merges:  cargo xtask test
One step of it:    cargo xtask test --only simulation
A minute of fuzz:  cargo xtask fuzz run --seconds 60
";

#[derive(Subcommand)]
enum Command {
    /// Checks everything: style, lints, documents, dependencies, tests, simulation, real peers.
    ///
    /// Steps run one after the other; the output of those that fail is shown. At the end
    /// comes a table of the steps, then what could not run and why, and as the last line
    /// `N passed, N failed`, which counts each test, and each other step as one. Exits
    /// with 1 when anything failed. Sets up the interop tests' peers by itself.
    Test(gate::Options),
    /// Installs what the interop tests need, and says what it does.
    ///
    /// Makes a Python environment in `.venv` with the packages that
    /// `tests/peers/requirements.txt` pins: real Mooncake and ZeroMQ peers. They need
    /// Debian's libibverbs1; as root it is installed with apt-get when it is missing,
    /// otherwise the command is printed. Running it again changes nothing.
    Setup(setup::Options),
    /// Runs the fuzz campaigns, in a release build.
    ///
    /// Arguments go to `kvbaton-fuzz` as they are: `run [CAMPAIGN…] [--seconds N]
    /// [--seed S]`, `replay FILE…`, `list`. Failing inputs are made small and kept in
    /// `fuzz/corpus`.
    Fuzz(fuzz::Options),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Test(options) => gate::test(&options),
        Command::Fuzz(options) => fuzz::fuzz(&options),
        Command::Setup(options) => setup::setup(&options).map(|()| true),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
