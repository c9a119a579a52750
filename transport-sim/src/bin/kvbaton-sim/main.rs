//! `kvbaton-sim`: simulated runs of kvbaton by seed.
#![forbid(unsafe_code)]

mod alarm;
mod args;
mod cycles;
mod failure;
mod list;
mod open;
mod replay;
mod sweep;
mod world;

use args::{Arguments, Command};
use clap::Parser;
use std::process::ExitCode;

/// Wrong use, or something that cannot be done.
const WRONG: u8 = 2;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if !cfg!(madsim) {
        eprintln!(
            "error: this build runs in real time, nothing is simulated in it.\n\
             Build and run it with `cargo xtask sim`, which passes `--cfg madsim`."
        );
        return ExitCode::from(WRONG);
    }
    let suite = world::suite();
    let result = match &arguments.command {
        None => sweep::run(&suite, &arguments.run),
        Some(Command::Run(options)) => sweep::run(&suite, options),
        Some(Command::Replay(options)) => replay::run(&suite, options),
        Some(Command::Hash(options)) => sweep::hash(&suite, options),
        Some(Command::List(options)) => list::run(&suite, options),
        Some(Command::Cycles(options)) => cycles::run(&suite, options),
        Some(Command::Alarm(options)) => alarm::run(&suite, options),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(WRONG)
        }
    }
}
