//! The `kvbaton` command.

use clap::{Parser, Subcommand};
use kvbaton_cli::demo::{self, DemoArgs, Verdict};
use std::process::ExitCode;

/// KV-cache transfer between prefill and decode engines.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(Box<DemoArgs>),
    /// One engine of a demo; started by it.
    #[command(hide = true)]
    Engine {
        /// What to be, as JSON.
        spec: String,
    },
}

fn main() -> ExitCode {
    let verdict = match Cli::parse().command {
        Command::Demo(args) => demo::run(&args),
        Command::Engine { spec } => match demo::process::run(&spec) {
            Ok(()) => Verdict::Right,
            Err(error) => {
                eprintln!("error: {error:#}");
                Verdict::CouldNotRun
            }
        },
    };
    ExitCode::from(verdict.exit_code())
}
