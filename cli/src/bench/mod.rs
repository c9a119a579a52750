//! `kvbaton bench`: the control plane's and the data plane's speed, beside the peers'.

mod control;
mod cpu;
mod data;
mod idle;
mod lanes;
mod lifecycle;
mod peers;
mod progress;
mod table;
pub mod target;
mod wake;

use anyhow::Result;
use clap::{Args, Subcommand};

/// Measure the control plane or the data plane, beside the peers in the same run, and the
/// lifecycle of engines under load.
///
/// Times differ from machine to machine: compare the ratios. Use a release build.
#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Control(control::ControlArgs),
    Data(data::DataArgs),
    Idle(idle::IdleArgs),
    Lifecycle(lifecycle::LifecycleArgs),
    Wake(wake::WakeArgs),
}

/// Runs the command.
///
/// # Errors
/// When something cannot be measured; a peer that is not installed is only reported.
pub fn run(args: &BenchArgs) -> Result<()> {
    if cfg!(debug_assertions) {
        eprintln!("warning: this is a debug build; its figures mean nothing (use --release)");
    }
    match &args.what {
        What::Control(args) => control::run(args),
        What::Data(args) => data::run(args),
        What::Idle(args) => idle::run(args),
        What::Lifecycle(args) => lifecycle::run(args),
        What::Wake(args) => wake::run(args),
    }
}
