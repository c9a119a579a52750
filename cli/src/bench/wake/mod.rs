//! `kvbaton bench wake`: what the first transfer after a wake costs, and how soon blocks of
//! an aborted load are back.

mod abort;
mod pair;

use super::progress;
use super::table::Table;
use crate::demo::scrape;
use crate::engine::{Awake, Mode, Operate};
use abort::Peer;
use anyhow::{Result, bail};
use clap::Args;
use pair::{D, P, Pair};
use serde_json::{Value, json};
use std::time::Duration;

/// Transfers after each wake beside the first: the steady ones.
const STEADY: usize = 5;
/// Tokens of the loads that are aborted: 32 MiB, so that they take a while.
const ABORTED_TOKENS: usize = 2048;
/// How long everything may take to come back.
const SETTLE: Duration = Duration::from_secs(20);
/// How long an aborted load's blocks may take to come back, in milliseconds.
const BACK_WITHIN: f64 = 10.0;
/// How much longer than a steady one the first transfer after a wake may take.
const FIRST_WITHIN: f64 = 1.1;

/// The first transfer after a wake beside steady ones, and blocks of aborted loads.
///
/// Two processes over TCP. D sleeps (level 1: memory unmapped, weights kept) and wakes, then
/// P; each time one request that P holds is loaded, then five more. The target is a median of
/// the first ones within 10 % of the steady ones' median. "missed" counts pulls after which D
/// had to send its layout once more: one each time that P woke, which forgets it [L09]; that
/// round trip is a fixed time, and shows in small transfers. Then loads are aborted while P
/// writes, waits, is stopped or is dead: their blocks are to be back within 10 ms. Loads that
/// were over before their abort are left out.
#[derive(Debug, Args)]
pub struct WakeArgs {
    /// Wakes of each engine.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    wakes: u32,
    /// Tokens of a request; 16 KiB each.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=16384))]
    tokens: u32,
    /// Aborted loads of each kind; of those with a dead P a third.
    #[arg(long, default_value_t = 30)]
    aborts: u32,
    /// Exit code 1 when a target is missed, too. On a machine that does other things they say
    /// little.
    #[arg(long)]
    strict: bool,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &WakeArgs) -> Result<()> {
    let bar = progress::bar(2 * args.wakes as usize + Peer::ALL.len() * args.aborts as usize);
    let time = Duration::from_secs(600);
    let mut lines = Vec::new();
    bar.set_message("wakes");
    let mut pair = Pair::start(args.tokens as usize, time)?;
    for (slot, name) in [(D, "D"), (P, "P")] {
        let (mut first, mut steady) = (Vec::new(), Vec::new());
        warm_up(&mut pair)?;
        let before = missed(&mut pair)?;
        for _ in 0..args.wakes {
            pair.operate(slot, Operate::Sleep { level: 1, mode: Mode::Keep })?;
            pair.operate(slot, Operate::Wake { parts: Awake::All })?;
            first.push(transfer(&mut pair)?);
            for _ in 0..STEADY {
                steady.push(transfer(&mut pair)?);
            }
            bar.inc(1);
        }
        let (first_us, steady_us) = (median(&mut first), median(&mut steady));
        let ratio = first_us / steady_us;
        let missed = missed(&mut pair)? - before;
        lines.push(json!({"what": format!("first transfer after {name} woke"),
            "wakes": args.wakes, "first_p50_us": first_us, "steady_p50_us": steady_us,
            "ratio": ratio, "layouts_missed": missed, "met": ratio <= FIRST_WITHIN}));
    }
    stop(pair)?;
    if args.aborts > 0 {
        lines.extend(aborts(args, &bar, time)?);
    }
    bar.finish_and_clear();
    print(args, &lines);
    if args.strict && lines.iter().any(|line| line["met"] == false) {
        bail!("a target was missed");
    }
    Ok(())
}

fn warm_up(pair: &mut Pair) -> Result<()> {
    (0..STEADY).try_for_each(|_| transfer(pair).map(drop))
}

/// Pulls so far that P answered with LAYOUT_MISS.
fn missed(pair: &mut Pair) -> Result<u64> {
    let snapshots = pair.fleet.settle(SETTLE)?;
    let texts = snapshots.iter().flat_map(|it| it.metrics.iter().map(String::as_str));
    Ok(scrape::sum(texts, "kvbaton_layouts_total", "layout=\"missed\"") as u64)
}

/// Microseconds.
fn transfer(pair: &mut Pair) -> Result<f64> {
    let number = pair.number();
    pair.hold(number)?;
    Ok(pair.load(number)?.as_secs_f64() * 1e6)
}

fn aborts(args: &WakeArgs, bar: &indicatif::ProgressBar, time: Duration) -> Result<Vec<Value>> {
    let mut pair = Pair::start(ABORTED_TOKENS, time)?;
    let mut lines = Vec::new();
    for peer in Peer::ALL {
        bar.set_message(format!("aborts, P {}", peer.name()));
        let count = if peer == Peer::Dead { args.aborts.div_ceil(3) } else { args.aborts };
        let mut times = Vec::new();
        for _ in 0..count {
            if let Some(took) = abort::abort(&mut pair, peer)? {
                times.push(took.as_secs_f64() * 1e3);
            }
            bar.inc(1);
        }
        let most = times.iter().copied().fold(0.0, f64::max);
        let p50 = if times.is_empty() { 0.0 } else { median(&mut times) };
        lines.push(json!({"what": format!("blocks back, P {}", peer.name()),
            "aborts": times.len(), "p50_ms": p50, "max_ms": most, "met": most <= BACK_WITHIN}));
    }
    stop(pair)?;
    Ok(lines)
}

/// Everything must have come back.
fn stop(mut pair: Pair) -> Result<()> {
    let snapshots = pair.fleet.settle(SETTLE)?;
    let left: Vec<String> = snapshots.into_iter().flat_map(|it| it.leftovers).collect();
    let left = [left, pair.fleet.stop()].concat();
    if left.is_empty() { Ok(()) } else { bail!("not everything came back: {}", left.join("; ")) }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn print(args: &WakeArgs, lines: &[Value]) {
    if args.json {
        lines.iter().for_each(|line| println!("{line}"));
        return;
    }
    let number = |line: &Value, name: &str| line[name].as_f64().unwrap_or_default();
    let met = |line: &Value| if line["met"] == true { "met" } else { "missed" }.to_owned();
    let mut table =
        Table::new(&["", "of", "first µs", "steady µs", "ratio", "missed", "within 10 %"]);
    for line in lines.iter().filter(|line| line["ratio"].is_number()) {
        table.row(vec![
            line["what"].as_str().unwrap_or_default().to_owned(),
            line["wakes"].to_string(),
            format!("{:.0}", number(line, "first_p50_us")),
            format!("{:.0}", number(line, "steady_p50_us")),
            format!("{:.2}", number(line, "ratio")),
            line["layouts_missed"].to_string(),
            met(line),
        ]);
    }
    table.print();
    let mut table = Table::new(&["", "of", "P50 ms", "most ms", "within 10 ms"]);
    for line in lines.iter().filter(|line| line["max_ms"].is_number()) {
        table.row(vec![
            line["what"].as_str().unwrap_or_default().to_owned(),
            line["aborts"].to_string(),
            format!("{:.2}", number(line, "p50_ms")),
            format!("{:.2}", number(line, "max_ms")),
            met(line),
        ]);
    }
    table.print();
}
