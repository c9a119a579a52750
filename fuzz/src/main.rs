//! `kvbaton-fuzz`: campaigns for a time, and failing inputs again.

mod report;

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kvbaton_fuzz::runner::{self, Plan};
use kvbaton_fuzz::{CAMPAIGNS, Campaign, campaign, corpus};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Drives kvbaton's machines, wire and layouts with random choices, next to reference
/// models that say what must hold.
#[derive(Parser)]
#[command(name = "kvbaton-fuzz", after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
A minute of everything:     kvbaton-fuzz run --seconds 60
Only both sides, all day:   kvbaton-fuzz run pair --seconds 86400 --seed 7
What a kept input does:     kvbaton-fuzz replay fuzz/corpus/pair/FILE.txt

Exits with 0 when everything held, 1 when a rule was broken, 2 on wrong use.
";

#[derive(Subcommand)]
enum Command {
    /// Runs campaigns, one after the other: kept inputs first, then random ones.
    ///
    /// A campaign stops at its first violation. The failing input is made small, written
    /// to CORPUS/CAMPAIGN as a text file with its steps in words, and runs first from then
    /// on. One seed gives one sequence of inputs per job; how far it comes depends on time.
    Run(RunArguments),
    /// Runs kept inputs and says what they do, step by step.
    Replay {
        /// Files of a corpus.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// The campaign; by default the name of each file's folder.
        #[arg(long)]
        campaign: Option<String>,
    },
    /// Lists the campaigns.
    List,
}

#[derive(Args)]
struct RunArguments {
    /// Campaigns to run; all of them by default.
    #[arg(value_name = "CAMPAIGN")]
    campaigns: Vec<String>,
    /// Seconds for each campaign.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Where randomness comes from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads; 0 for as many as there are processors.
    #[arg(long, default_value_t = 0)]
    jobs: usize,
    /// Where inputs are kept.
    #[arg(long, default_value = "fuzz/corpus")]
    corpus: PathBuf,
    /// Print the summary as JSON.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Run(arguments) => run(&arguments),
        Command::Replay { files, campaign } => replay(&files, campaign.as_deref()),
        Command::List => {
            CAMPAIGNS.iter().for_each(|it| println!("{:<16} {}", it.name, it.about));
            Ok(true)
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn by_name(name: &str) -> Result<&'static Campaign> {
    let names: Vec<&str> = CAMPAIGNS.iter().map(|it| it.name).collect();
    campaign(name).with_context(|| format!("no campaign {name}; there are {}", names.join(", ")))
}

fn run(arguments: &RunArguments) -> Result<bool> {
    let mut chosen = Vec::new();
    for name in &arguments.campaigns {
        chosen.push(by_name(name)?);
    }
    if chosen.is_empty() {
        for it in &CAMPAIGNS {
            chosen.push(by_name(it.name)?);
        }
    }
    let Ok(time) = Duration::try_from_secs_f64(arguments.seconds) else {
        bail!("--seconds {} is no time", arguments.seconds);
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = if arguments.jobs == 0 { cores } else { arguments.jobs };
    let plan = Plan { time, seed: arguments.seed, jobs, corpus: &arguments.corpus };
    let mut outcomes = Vec::new();
    for campaign in chosen {
        let bar = progress(campaign, time, arguments.json);
        let outcome = runner::run(campaign, &plan, |cases, steps| {
            bar.set_position(bar.elapsed().as_millis() as u64);
            let rate = steps as f64 / bar.elapsed().as_secs_f64().max(1e-9);
            bar.set_message(format!("{cases} cases, {}", report::rate(rate)));
        })?;
        bar.finish_and_clear();
        if !arguments.json {
            outcome.found.iter().for_each(|found| println!("{}", report::found(campaign, found)));
        }
        outcomes.push(outcome);
    }
    if arguments.json {
        println!("{}", report::json(&plan, &outcomes)?);
    } else {
        print!("{}", report::table(&outcomes));
    }
    Ok(outcomes.iter().all(|outcome| outcome.found.is_empty()))
}

/// A line on a terminal, nothing elsewhere.
fn progress(campaign: &Campaign, time: Duration, json: bool) -> ProgressBar {
    let bar = ProgressBar::new(time.as_millis() as u64);
    if json {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    if let Ok(style) = ProgressStyle::with_template("{prefix:16} {bar:24} {elapsed:>4} {msg}") {
        bar.set_style(style);
    }
    bar.set_prefix(campaign.name);
    bar
}

fn replay(files: &[PathBuf], named: Option<&str>) -> Result<bool> {
    let mut fine = true;
    for file in files {
        let campaign = match named {
            Some(name) => by_name(name)?,
            None => corpus::campaign_of(file)?,
        };
        let input = corpus::read(file)?;
        let (result, lines, steps) = campaign.in_words(&input);
        println!("{}: {}, {steps} steps", file.display(), campaign.name);
        lines.iter().for_each(|line| println!("    {line}"));
        match result {
            Ok(()) => println!("    -> every rule held"),
            Err(violation) => {
                println!("    -> {violation}");
                fine = false;
            }
        }
    }
    Ok(fine)
}
