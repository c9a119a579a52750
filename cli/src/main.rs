//! The `kvbaton` command.

use clap::{Parser, Subcommand};
use kvbaton::{bench, demo, doctor, inspect, serve};
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
    Demo(Box<demo::DemoArgs>),
    Bench(bench::BenchArgs),
    Doctor(doctor::DoctorArgs),
    Inspect(inspect::InspectArgs),
    Serve(Box<serve::ServeArgs>),
    /// One engine of a demo, which starts it.
    #[command(hide = true)]
    Engine {
        /// What to be, as JSON.
        spec: String,
    },
    #[command(hide = true)]
    BenchTarget(bench::target::TargetArgs),
}

fn main() -> ExitCode {
    let result = match &Cli::parse().command {
        Command::Demo(args) => return ExitCode::from(demo::run(args).exit_code()),
        Command::Doctor(args) => return doctor::run(args),
        Command::Engine { spec } => demo::process::run(spec),
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
