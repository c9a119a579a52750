//! The `kvbaton` command.

use clap::{Parser, Subcommand};
use kvbaton::{bench, inspect, serve};
use std::process::ExitCode;

/// Moves KV cache between inference engines.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Bench(bench::BenchArgs),
    Inspect(inspect::InspectArgs),
    Serve(serve::ServeArgs),
    #[command(hide = true)]
    BenchTarget(bench::target::TargetArgs),
}

fn main() -> ExitCode {
    let result = match &Cli::parse().command {
        Command::Bench(args) => bench::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Serve(args) => serve::run(args),
        Command::BenchTarget(args) => bench::target::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
