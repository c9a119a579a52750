//! The data plane between two processes of this machine.

use super::cpu;
use super::lanes;
use super::peers::{self, Peer};
use super::progress;
use super::table::Table;
use super::target::{GRANT, POOL, Target, pool};
use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use kvbaton_actors::transport::{DataPlane, PeerKind, Write, WriteId, WriteOutcome};
use kvbaton_core::ids::{Address, Bytes, Generation, SessionAddress};
use kvbaton_core::region::Copy;
use kvbaton_transport_tcp::data::{DataConfig, TcpDataPlane};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Writes between two processes over loopback TCP: large, scattered, many, small.
///
/// GB are 10^9 bytes; each figure is the median over the rounds of one case. Processor
/// time is user and system time of all threads. With --json the last line has every
/// engine's figures by case, and ours over theirs.
#[derive(Debug, Args)]
pub struct DataArgs {
    /// Seconds per case.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Data connections.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// Engines to measure in the same run, if they are installed.
    #[arg(long, value_enum, value_delimiter = ',')]
    against: Vec<Against>,
    /// Print JSON, one object a line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Against {
    /// Mooncake's transfer engine, TCP.
    Mooncake,
    /// NIXL with UCX, TCP.
    Nixl,
    /// Plain writev and readv over as many connections: the ceiling.
    Lanes,
}

impl Against {
    fn name(self) -> &'static str {
        match self {
            Self::Mooncake => "mooncake",
            Self::Nixl => "nixl",
            Self::Lanes => "lanes",
        }
    }
}

/// Blocks of so many bytes, so many of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    pub name: &'static str,
    pub block: u64,
    pub count: u64,
}

const CASES: [Case; 6] = [
    Case { name: "contiguous_512MiB", block: POOL, count: 1 },
    Case { name: "scattered_1000x256KiB", block: 256 << 10, count: 1000 },
    Case { name: "scattered_1000x64KiB", block: 64 << 10, count: 1000 },
    Case { name: "scattered_1000x16KiB", block: 16 << 10, count: 1000 },
    Case { name: "scattered_20000x4KiB", block: 4 << 10, count: 20_000 },
    Case { name: "latency_4KiB", block: 4 << 10, count: 1 },
];

pub(super) fn run(args: &DataArgs) -> Result<()> {
    let time = Duration::from_secs_f64(args.seconds.clamp(0.05, 600.0));
    let mut engines = vec![("kvbaton", Ok(ours(args, time)?))];
    for against in &args.against {
        let found = match against {
            Against::Lanes => baseline(args, time),
            Against::Mooncake => peers::run(Peer::Mooncake).and_then(|it| cases(&it)),
            Against::Nixl => peers::run(Peer::Nixl).and_then(|it| cases(&it)),
        };
        engines.push((against.name(), found));
    }
    if args.json { print_json(&engines) } else { print_table(&engines) }
}

type Engine = (&'static str, Result<Vec<Value>>);

fn print_json(engines: &[Engine]) -> Result<()> {
    let mut last = json!({});
    for (name, found) in engines {
        match found {
            Ok(cases) => {
                for case in cases {
                    last[*name][text(case)] = case.clone();
                }
            }
            Err(why) => last[*name] = json!({"not_run": format!("{why:#}")}),
        }
    }
    for case in CASES {
        for (name, _) in &engines[1..] {
            let gbps = |engine: &str| last[engine][case.name]["gbps_median"].as_f64();
            if let (Some(ours), Some(theirs)) = (gbps("kvbaton"), gbps(name)) {
                last["ratio"][*name][case.name] = json!(ours / theirs);
            }
        }
    }
    println!("{last}");
    Ok(())
}

fn print_table(engines: &[Engine]) -> Result<()> {
    let heading = ["case", "engine", "GB/s", "ours ×", "P50 µs", "CPU s/GB out", "in"];
    let mut table = Table::new(&heading);
    let number = |case: &Value, key: &str, digits: usize| {
        case[key].as_f64().map_or("-".into(), |it| format!("{it:.digits$}"))
    };
    for case in CASES {
        let find = |cases: &[Value]| cases.iter().find(|it| text(it) == case.name).cloned();
        let ours = engines[0].1.as_ref().ok().and_then(|it| find(it));
        let ours = ours.as_ref().and_then(|it| it["gbps_median"].as_f64());
        for (name, found) in engines {
            let Some(row) = found.as_ref().ok().and_then(|it| find(it)) else { continue };
            let theirs = row["gbps_median"].as_f64();
            let ratio = ours.zip(theirs).map_or("-".into(), |(o, t)| format!("{:.2}", o / t));
            table.row(vec![
                case.name.into(),
                (*name).into(),
                number(&row, "gbps_median", 2),
                ratio,
                number(&row, "p50_us", 1),
                number(&row, "cpu_s_per_gb_initiator", 3),
                number(&row, "cpu_s_per_gb_target", 3),
            ]);
        }
    }
    table.print();
    for (name, found) in engines {
        if let Err(why) = found {
            println!("{name}: not run: {why:#}");
        }
    }
    Ok(())
}

fn text(case: &Value) -> &str {
    case["name"].as_str().unwrap_or_default()
}

/// A peer's cases, with its latency under our name for it.
fn cases(found: &Value) -> Result<Vec<Value>> {
    let mut cases = found["cases"].as_array().context("the peer printed no cases")?.clone();
    for case in &mut cases {
        if text(case).starts_with("latency") {
            case["name"] = json!("latency_4KiB");
        }
    }
    Ok(cases)
}

fn ours(args: &DataArgs, time: Duration) -> Result<Vec<Value>> {
    let connections = usize::from(args.connections);
    each("kvbaton", CASES.iter(), |case| measure(case, connections, time))
}

fn each<'a>(
    engine: &str,
    cases: impl Iterator<Item = &'a Case>,
    measure: impl Fn(&Case) -> Result<Value>,
) -> Result<Vec<Value>> {
    let cases: Vec<&Case> = cases.collect();
    let bar = progress::bar(cases.len());
    let mut figures = Vec::new();
    for case in cases {
        bar.set_message(format!("{engine}: {}", case.name));
        figures.push(measure(case)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(figures)
}

fn baseline(args: &DataArgs, time: Duration) -> Result<Vec<Value>> {
    let lanes = usize::from(args.connections);
    let cases = CASES.iter().filter(|case| case.count > 1);
    each("plain writev and readv", cases, |case| lanes::measure(case, lanes, time))
}

fn measure(case: &Case, connections: usize, time: Duration) -> Result<Value> {
    let (_memory, range) = pool(1);
    let config = DataConfig { connections_per_peer: connections, ..DataConfig::default() };
    let plane = TcpDataPlane::open(config)?;
    // SAFETY: the memory outlives the plane, and only the plane uses it.
    unsafe { plane.register(&[range]) }?;
    let (mut target, hello) = Target::start(&[])?;
    let number = |name: &str| hello[name].as_u64().context("the receiver said no number");
    let session = SessionAddress { host: "127.0.0.1".into(), port: number("port")? as u16 };
    let generation = Generation(number("generation")?);
    let copies = copies(case, range.start.0, number("start")?);
    let mut next = 0;
    let mut round = || -> Result<f64> {
        next += 1;
        let write = Write {
            id: WriteId(next),
            session: session.clone(),
            kind: PeerKind::Kvbaton,
            generation: Some(generation),
            grant: Some(GRANT),
            keys: Arc::from([]),
            copies: copies.clone(),
            timeout: Duration::from_secs(60),
        };
        let begin = Instant::now();
        let outcome = futures_executor::block_on(plane.write(write));
        let took = begin.elapsed().as_secs_f64();
        ensure!(outcome == WriteOutcome::Written, "{}: {outcome:?}", case.name);
        Ok(took)
    };
    for _ in 0..3 {
        round()?;
    }
    let (own, theirs, begin) = (cpu::seconds(), target.cpu()?, Instant::now());
    let mut rounds = Vec::new();
    while begin.elapsed() < time || rounds.len() < 5 {
        rounds.push(round()?);
    }
    let gigabytes = (case.block * case.count * rounds.len() as u64) as f64 / 1e9;
    let (own, theirs) = (cpu::seconds() - own, target.cpu()? - theirs);
    figure(case, rounds, own / gigabytes, theirs / gigabytes)
}

/// One case's figures, named as the peers name theirs.
pub(super) fn figure(case: &Case, mut rounds: Vec<f64>, own: f64, theirs: f64) -> Result<Value> {
    ensure!(!rounds.is_empty(), "no rounds");
    rounds.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| rounds[((rounds.len() - 1) as f64 * share) as usize];
    let gigabytes = (case.block * case.count) as f64 / 1e9;
    let mut figure = json!({
        "name": case.name, "bytes": case.block * case.count, "repetitions": rounds.len(),
        "p50_us": at(0.5) * 1e6, "p99_us": at(0.99) * 1e6,
    });
    if case.name != "latency_4KiB" {
        figure["gbps_median"] = json!(gigabytes / at(0.5));
        figure["gbps_best"] = json!(gigabytes / at(0.0));
        figure["cpu_s_per_gb_initiator"] = json!(own);
        figure["cpu_s_per_gb_target"] = json!(theirs);
    }
    Ok(figure)
}

/// Numbers below `count`, each once, in an order that `seed` decides.
pub(super) fn order(count: u64, seed: u64) -> Vec<u64> {
    let mut order: Vec<u64> = (0..count).collect();
    let mut state = seed;
    for index in (1..order.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        order.swap(index, (state >> 33) as usize % (index + 1));
    }
    order
}

/// Blocks scattered over both pools, in orders of their own.
fn copies(case: &Case, source: u64, destination: u64) -> Vec<Copy> {
    let stride = (POOL / case.count) & !63;
    let at = |base: u64, index: u64| Address(base + index * stride);
    let pairs = order(case.count, 1).into_iter().zip(order(case.count, 2));
    let copy = |(from, to)| Copy {
        source: at(source, from),
        destination: at(destination, to),
        len: Bytes(case.block),
    };
    pairs.map(copy).collect()
}
