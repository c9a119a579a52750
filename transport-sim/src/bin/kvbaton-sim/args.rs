//! The command line.

use clap::{Args, Parser, Subcommand};
use kvbaton_transport_sim::campaign::Seeds;
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "\
Every seed decides one run: its engines, requests, faults, and what the network does.

  cargo xtask sim --seeds 1..1000                        a swarm over 999 seeds
  cargo xtask sim --seeds 1..1000 --scenario restart     one scenario
  cargo xtask sim --minutes 60 --seeds 1..10000000       for an hour
  cargo xtask sim replay --scenario mixed --seed 17      one of them again
  cargo xtask sim replay --plan FILE --log --open        a cut-down failure, and its page
  cargo xtask sim list                                   scenarios, oracles, sites, bugs
  cargo xtask alarm                                      does it find planted bugs?

Seeds of transport-sim/ledger.txt, which failed once, run first. A failure is cut down to
what it needs and drawn as a page. Exits with 0 when nothing failed, with 1 when something
did, with 2 when it was used wrongly.";

/// Simulated runs of kvbaton: actors, network, memory and engines as functions of a seed.
#[derive(Debug, Parser)]
#[command(name = "kvbaton-sim", version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct Arguments {
    /// Without a command: `run`.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// What to run.
    #[command(flatten)]
    pub run: RunArgs,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs seeds until one fails (the default).
    Run(RunArgs),
    /// Runs one plan again.
    Replay(ReplayArgs),
    /// Prints `scenario seed hash` of each run's events.
    Hash(HashArgs),
    /// Lists scenarios, oracles, sites and planted bugs.
    List(ListArgs),
    /// Searches for each planted bug and says how many seeds it took.
    Alarm(AlarmArgs),
    /// Lets engines sleep and wake again and again under load: do tables grow?
    Cycles(CyclesArgs),
}

/// Which plans, and how.
#[derive(Debug, Args)]
pub struct Which {
    /// Seeds: `1..1000` (without 1000), `1..=999`, or `17`
    #[arg(long, default_value = "1..1000")]
    pub seeds: Seeds,
    /// Scenarios, by name; `all` for all of them [default: the first that `list` shows]
    #[arg(long, num_args = 1.., value_delimiter = ',')]
    pub scenario: Vec<String>,
    /// Runs at once [default: one per processor]
    #[arg(long, short)]
    pub jobs: Option<usize>,
}

/// A campaign.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Which plans.
    #[command(flatten)]
    pub which: Which,
    /// Start no run after so many minutes
    #[arg(long)]
    pub minutes: Option<f64>,
    /// Do not stop at the first failure
    #[arg(long)]
    pub keep_going: bool,
    /// Leave out the seeds that failed once
    #[arg(long)]
    pub no_ledger: bool,
    /// The seeds that failed once
    #[arg(long, value_name = "FILE")]
    pub ledger: Option<PathBuf>,
    /// Leave failing plans as they are
    #[arg(long)]
    pub no_shrink: bool,
    /// Most runs for cutting one plan down
    #[arg(long, default_value_t = 400)]
    pub shrink_runs: u32,
    /// Folder for plans and pages of failures [default: target/sim/failures]
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// Show the first failure's page in a browser
    #[arg(long)]
    pub open: bool,
    /// For machines
    #[arg(long)]
    pub json: bool,
}

impl RunArgs {
    /// Time to spend.
    pub fn budget(&self) -> Option<Duration> {
        self.minutes.and_then(|it| Duration::try_from_secs_f64(it * 60.0).ok())
    }
}

/// One run.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// Its scenario [default: the first that `list` shows]
    #[arg(long, conflicts_with = "plan")]
    pub scenario: Option<String>,
    /// Its seed
    #[arg(long, required_unless_present = "plan", conflicts_with = "plan")]
    pub seed: Option<u64>,
    /// A plan in a file
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// Plant a bug
    #[arg(long, value_name = "BUG")]
    pub plant: Option<String>,
    /// Print every event
    #[arg(long)]
    pub log: bool,
    /// Cut the plan down if it fails
    #[arg(long)]
    pub shrink: bool,
    /// Write the plan to this file
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Folder for the page [default: target/sim/failures]
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// Draw the page and show it in a browser
    #[arg(long)]
    pub open: bool,
    /// For machines
    #[arg(long)]
    pub json: bool,
}

/// Hashes.
#[derive(Debug, Args)]
pub struct HashArgs {
    /// Which plans.
    #[command(flatten)]
    pub which: Which,
}

/// Lists.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// For machines
    #[arg(long)]
    pub json: bool,
}

/// The search for planted bugs.
#[derive(Debug, Args)]
pub struct AlarmArgs {
    /// Bugs, by name [default: all]
    #[arg(long, num_args = 1.., value_delimiter = ',')]
    pub bug: Vec<String>,
    /// Searches for each bug, each from seeds of its own
    #[arg(long, default_value_t = 5)]
    pub starts: usize,
    /// Seeds after which a bug counts as not found
    #[arg(long, default_value_t = 2_000)]
    pub limit: u64,
    /// Searches at once [default: one per processor]
    #[arg(long, short)]
    pub jobs: Option<usize>,
    /// For machines
    #[arg(long)]
    pub json: bool,
}

/// Sleeps and wakes.
#[derive(Debug, Args)]
pub struct CyclesArgs {
    /// How many
    #[arg(long, default_value_t = 2_000)]
    pub count: u32,
    /// Requests at once
    #[arg(long, default_value_t = 64)]
    pub concurrency: u32,
    /// Decides what the network does
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// For machines
    #[arg(long)]
    pub json: bool,
}

/// The number of jobs to use.
pub fn jobs(asked: Option<usize>) -> usize {
    asked.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, Into::into)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound_and_runs_without_a_command() {
        Arguments::command().debug_assert();
        let it = Arguments::parse_from(["kvbaton-sim", "--seeds", "3..5", "--scenario", "a", "b"]);
        assert!(it.command.is_none());
        assert_eq!(it.run.which.seeds, Seeds::new(3, 5));
        assert_eq!(it.run.which.scenario, ["a", "b"]);
    }
}
