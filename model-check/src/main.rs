//! The `kvbaton-model-check` command.

use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use kvbaton_model_check::check::{Report, explore};
use kvbaton_model_check::options::{Fault, Options};
use kvbaton_model_check::prove::prove;
use kvbaton_model_check::suite::{Run, every};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Duration;

/// Explores every order of events of small worlds whose transitions are core's own machines.
///
/// A world is one P engine, one D, and a few faults, each of which may happen once at any time
/// or not at all. Prints, per world, its states, the longest path, and the time; for a broken
/// rule the steps that lead there. Without options it explores the full set, two loads each: every
/// pair of all faults, and restart, eviction, re-registration and drop together, with two P ranks;
/// then these four and a network that loses and doubles a message with one P rank. All six with two
/// ranks (`--faults restart,evict,decode-sleep,drop,lose,duplicate`) takes longer than the rest
/// together. The set takes three minutes on one core: 28.6 million states.
///
/// Exits with 0 when every rule holds, 1 when one is broken, 2 for a wrong use.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES)]
struct Arguments {
    /// Ranks of P's engine.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=2))]
    ranks: u8,
    /// Requests that D loads.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=3))]
    loads: u8,
    /// Blocks of each request.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=4))]
    blocks: u8,
    /// Writes that one P rank runs at once.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=4))]
    slots: u8,
    /// What may go wrong, all in one world unless `--every` says otherwise; a fault that is
    /// named twice may happen twice.
    #[arg(long, value_enum, value_delimiter = ',')]
    faults: Option<Vec<Kind>>,
    /// One world for every choice of so many of the faults (of all kinds by default).
    #[arg(long, value_name = "COUNT")]
    every: Option<usize>,
    /// Explores late messages at any time, not only at once; many more states.
    #[arg(long)]
    late_any_time: bool,
    /// Visits every state, also those that others stand for; five to fifteen times as many.
    #[arg(long)]
    whole: bool,
    /// Visits every state, and looks up that those which stand for one another behave alike.
    /// Keeps whole states: for worlds of a million states.
    #[arg(long)]
    prove: bool,
    /// Threads that explore.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// One JSON object per world, on a line of its own.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Covered:
  Every order of steps of one P engine of --ranks ranks and one D that loads --loads requests,
  each from every P rank, in one pull or several; messages arrive in any order; writes land piece
  by piece, early, late or never; each fault of the world once (or as often as it is named), at
  any time, or not at all. In every state every rule of the contract that concerns two nodes; and
  that every request ends: nothing is left where nothing can happen any more, and without a lost
  message no deadline is waited for.
Not covered:
  More ranks, loads or faults at once than a world has; a second engine of either kind; a restart
  of D; stock peers; a request that is loaded twice; layouts that do not fit; actors, sockets and
  threads (the simulation and the tests of transports run these).
States that others stand for are not visited; --prove looks up in small worlds that these
behave alike, and --whole visits them.

Everything:         kvbaton-model-check
One small world:    kvbaton-model-check --ranks 1 --faults restart,drop
Every three faults: kvbaton-model-check --ranks 1 --every 3
Left out rightly?   kvbaton-model-check --ranks 1 --every 2 --prove
";

/// A fault on the command line.
#[derive(Debug, Clone, Copy)]
struct Kind(Fault);

impl ValueEnum for Kind {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [Kind; Fault::ALL.len()] = {
            let mut all = [Kind(Fault::Restart); Fault::ALL.len()];
            let mut at = 0;
            while at < all.len() {
                all[at] = Kind(Fault::ALL[at]);
                at += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(clap::builder::PossibleValue::new(self.0.name()))
    }
}

impl Arguments {
    fn runs(&self) -> Vec<Run> {
        let size = Options {
            ranks: self.ranks,
            loads: self.loads,
            blocks: self.blocks,
            slots: self.slots,
            late_at_once: !self.late_any_time,
            reduced: !self.whole,
            ..Options::default()
        };
        let named: Option<Vec<Fault>> =
            self.faults.as_ref().map(|kinds| kinds.iter().map(|kind| kind.0).collect());
        match (named, self.every) {
            (None, None) => {
                let mut runs = every(size, &Fault::ALL, 2);
                runs.push(Run::new(size, &TOGETHER[..4]));
                runs.push(Run::new(Options { ranks: 1, ..size }, &TOGETHER));
                runs
            }
            (named, Some(many)) => every(size, named.as_deref().unwrap_or(&Fault::ALL), many),
            (Some(named), None) => vec![Run::new(size, &named)],
        }
    }
}

/// The faults that the full set explores together: the first four with every P rank, all of
/// them with one.
const TOGETHER: [Fault; 6] =
    [Fault::Restart, Fault::Evict, Fault::DecodeSleep, Fault::Drop, Fault::Lose, Fault::Duplicate];

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let (mut states, mut seconds, mut broken) = (0, 0.0, 0);
    for run in arguments.runs() {
        if arguments.prove {
            broken += usize::from(!prove_alike(&run, arguments.json));
            continue;
        }
        let bar = spinner(&run.name());
        let report = explore(run.options, arguments.threads.into(), |states| {
            bar.set_position(states as u64);
        });
        bar.finish_and_clear();
        states += report.states;
        seconds += report.took.as_secs_f64();
        broken += usize::from(report.violation.is_some());
        if arguments.json {
            println!("{}", as_json(&run, &report));
        } else {
            say(&run, &report);
        }
    }
    if !arguments.json && !arguments.prove {
        println!("{states} states in {seconds:.1} s, {broken} worlds with a broken rule");
    }
    ExitCode::from(u8::from(broken > 0))
}

/// True when states that stand for one another behave alike.
fn prove_alike(run: &Run, as_json: bool) -> bool {
    let bar = spinner(&run.name());
    let proof = prove(&run.options);
    bar.finish_and_clear();
    let (states, groups) = (proof.states, proof.groups);
    if as_json {
        let faults: Vec<_> = run.faults.iter().map(|fault| fault.name()).collect();
        println!(
            "{}",
            json!({ "faults": faults, "states": states, "groups": groups, "differ": proof.differ })
        );
    } else {
        let verdict = if proof.differ.is_some() { "DIFFER" } else { "alike" };
        println!("{verdict:<6} {states:>10} states in {groups:>10} groups  {}", run.name());
        proof.differ.iter().for_each(|differ| println!("{differ}"));
    }
    proof.differ.is_none()
}

/// Hidden where nobody looks: the bar draws on a terminal only.
fn spinner(name: &str) -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{spinner} {msg}: {human_pos} states, {elapsed}");
    bar.set_style(style.expect("a template that can be read"));
    bar.set_message(name.to_owned());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn rate(report: &Report) -> f64 {
    report.states as f64 / report.took.as_secs_f64().max(1e-9)
}

fn say(run: &Run, report: &Report) {
    let verdict = if report.violation.is_some() { "BROKEN" } else { "holds" };
    println!(
        "{verdict:<6} {:>10} states {:>4} deep {:>7.1} s {:>8.0} states/s  {} P: {}",
        report.states,
        report.depth,
        report.took.as_secs_f64(),
        rate(report),
        run.options.ranks,
        run.name(),
    );
    let Some(violation) = &report.violation else { return };
    println!("  {}", violation.rule.words());
    for (number, step) in violation.steps.iter().enumerate() {
        println!("  {:>3}. {step}", number + 1);
    }
}

fn as_json(run: &Run, report: &Report) -> Value {
    let reached = report.tables.seen().list();
    json!({
        "faults": run.faults.iter().map(|fault| fault.name()).collect::<Vec<_>>(),
        "ranks": run.options.ranks,
        "loads": run.options.loads,
        "states": report.states,
        "generated": report.generated,
        "depth": report.depth,
        "seconds": report.took.as_secs_f64(),
        "states_per_second": rate(report),
        "visited_bytes": report.bytes,
        "nodes": report.tables.sizes(),
        "reached": reached.into_iter().collect::<std::collections::BTreeMap<_, _>>(),
        "broken": report.violation.as_ref().map(|it| it.rule.words()),
        "path": report.violation.as_ref().map(|it| &it.steps),
    })
}
