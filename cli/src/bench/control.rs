//! P's side of one pull: decode, look up, validate, plan.

use super::peers::{self, Peer};
use super::table::Table;
use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use hdrhistogram::Histogram;
use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::{
    Address, Generation, Grant, Incarnation, LayoutId, SessionAddress, WeightVersion,
};
use kvbaton_core::layout::Layout;
use kvbaton_core::peer_layouts::{LayoutTable, Resolution};
use kvbaton_core::plan::{BlockRequest, LocalLayout, PlanScratch, TokenEnds};
use kvbaton_core::region::GroupKind;
use kvbaton_core::wire::{Limits, Pull, PullExtension, PullRequest, REVISION, ToPrefill};
use kvbaton_model_engine::{RankLayout, RankPlace, deepseek146};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// P's work for one pull of 146 regions in 4 groups, 32 blocks each.
///
/// Steady means that P holds D's layout. Runs and regions are varied to show what the
/// time grows with. The last line of --json has p50_us: the steady pull in the stock form.
#[derive(Debug, Args)]
pub struct ControlArgs {
    /// Pulls per figure.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(100..))]
    pulls: u32,
    /// Print JSON, one object a line.
    #[arg(long)]
    json: bool,
    /// Whom to time in the same run, if it is installed.
    #[arg(long, value_enum, default_value_t = Against::Reference)]
    against: Against,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Against {
    /// vLLM's planner.
    Reference,
    /// Nobody.
    None,
}

/// One measured pull.
struct Figure {
    name: String,
    regions: usize,
    runs: u32,
    blocks: u32,
    bytes: usize,
    copies: usize,
    times: Histogram<u64>,
}

impl Figure {
    fn us(&self, quantile: f64) -> f64 {
        self.times.value_at_quantile(quantile) as f64 / 1000.0
    }

    fn json(&self) -> Value {
        json!({
            "what": self.name, "regions": self.regions, "runs_per_group": self.runs,
            "blocks_per_group": self.blocks, "pull_bytes": self.bytes, "copies": self.copies,
            "p50_us": self.us(0.5), "p99_us": self.us(0.99),
        })
    }
}

pub(super) fn run(args: &ControlArgs) -> Result<()> {
    let figures = measure(args.pulls)?;
    let steady = figures[0].us(0.5);
    let reference = args.against == Against::Reference;
    let reference = reference.then(|| peers::run(Peer::Reference));
    if args.json {
        for figure in &figures[1..] {
            println!("{}", figure.json());
        }
        let mut last = figures[0].json();
        match &reference {
            Some(Ok(found)) => {
                let p50 = reference_p50(found)?;
                last["reference_p50_us"] = json!(p50);
                last["ratio"] = json!(p50 / steady);
            }
            Some(Err(why)) => last["reference_not_run"] = json!(why.to_string()),
            None => {}
        }
        println!("{last}");
        return Ok(());
    }
    let heading = ["pull at P", "regions", "runs", "blocks", "bytes", "copies", "P50 µs", "P99 µs"];
    let mut table = Table::new(&heading);
    for figure in &figures {
        table.row(vec![
            figure.name.clone(),
            figure.regions.to_string(),
            figure.runs.to_string(),
            figure.blocks.to_string(),
            figure.bytes.to_string(),
            figure.copies.to_string(),
            format!("{:.2}", figure.us(0.5)),
            format!("{:.2}", figure.us(0.99)),
        ]);
    }
    table.print();
    match reference {
        Some(Ok(found)) => {
            let p50 = reference_p50(&found)?;
            println!("reference, steady pull: {p50:.0} µs; ours is {:.0} × faster", p50 / steady);
        }
        Some(Err(why)) => println!("reference: not run: {why:#}"),
        None => {}
    }
    Ok(())
}

fn reference_p50(found: &Value) -> Result<f64> {
    found["layout_less"]["whole"]["p50_us"].as_f64().context("the reference printed no figure")
}

fn measure(pulls: u32) -> Result<Vec<Figure>> {
    let whole = layout(146)?;
    let mut figures = vec![
        steady("steady, stock form", &whole, 1, 32, false, pulls)?,
        steady("steady, our form", &whole, 1, 32, true, pulls)?,
        first("first, stock form", &whole, false, pulls / 20)?,
        first("first, our form", &whole, true, pulls / 20)?,
    ];
    for blocks in [64, 512] {
        figures.push(steady("more blocks, one run", &whole, 1, blocks, true, pulls / 4)?);
    }
    for runs in [2, 8, 32] {
        figures.push(steady("more runs", &whole, runs, 32, true, pulls / 4)?);
    }
    for regions in [37, 73] {
        figures.push(steady("fewer regions", &layout(regions)?, 1, 32, true, pulls / 4)?);
    }
    Ok(figures)
}

/// The first `regions` regions of the published shape, one rank of four.
fn layout(regions: usize) -> Result<LocalLayout> {
    let shape = deepseek146();
    let place = RankPlace { tp_rank: 1, tp_size: 4, pp_rank: 0, pp_size: 1 };
    let ranks = RankLayout::new(&shape, place, 4096, Address(0x7f00_0000_0000))?;
    let mut local = ranks.register(&shape, place, 4096)?;
    for group in &mut local.groups {
        group.kind = GroupKind::Attention;
    }
    local.fingerprint = None;
    local.regions.truncate(regions);
    local.rows.truncate(regions);
    local.opaque.truncate(regions);
    local.check()?;
    Ok(local)
}

fn pull(local: &LocalLayout, runs: u32, blocks: u32, with_layout: bool) -> Pull {
    let group = || {
        let mut list = BlockList::new();
        for run in 0..runs {
            list.push_run(
                kvbaton_core::ids::BlockId(640 + run * (blocks / runs + 1)),
                blocks / runs,
            );
        }
        list
    };
    let layout = Layout {
        regions: local.regions.clone(),
        rows: local.rows.clone(),
        opaque: local.opaque.clone(),
        storages: local.memory.clone(),
    };
    Pull {
        session: SessionAddress { host: "10.0.0.2".into(), port: 15234 },
        tp_size: 4,
        tp_rank: 1,
        pp_size: 1,
        layout_id: LayoutId::from_random(0x5a5a_5a5a_1234_5678),
        layout: with_layout.then(|| layout.to_columns()),
        requests: vec![PullRequest {
            request_id: "cmpl-4f1d2c3b-9a8e-4d7c-b6a5-0123456789ab-0".into(),
            transfer_id: "xfer-0f1e2d3c4b5a69788796a5b4c3d2e1f0".into(),
            groups: (0..local.groups.len()).map(|_| group()).collect(),
            grant: Some(Grant(0x1234_5678_9abc_def0)),
            end_token: None,
        }],
        extension: Some(PullExtension {
            revision: REVISION,
            features: 0,
            incarnation: Incarnation(0x0fed_cba9_8765_4321),
            generation: Generation(0x1111_2222_3333_4444),
            timeout: Duration::from_secs(540),
            weights: WeightVersion::default(),
        }),
    }
}

fn encode(pull: &Pull, compact: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    if compact {
        pull.encode_compact(&mut bytes)
    } else {
        pull.encode_stock(&mut bytes)
    }
    bytes
}

/// Pulls that rely on P's cache.
fn steady(
    name: &str,
    local: &LocalLayout,
    runs: u32,
    blocks: u32,
    compact: bool,
    pulls: u32,
) -> Result<Figure> {
    let mut table = LayoutTable::default();
    table.register(local.clone())?;
    let first = table.resolve(&pull(local, 1, 32, true));
    ensure!(matches!(first, Resolution::Ready { .. }), "the layout does not fit itself: {first:?}");
    let bytes = encode(&pull(local, runs, blocks, false), compact);
    time(name, local, runs, blocks, bytes, &mut table, pulls)
}

/// Pulls that carry the layout, each under an id that P does not know.
fn first(name: &str, local: &LocalLayout, compact: bool, pulls: u32) -> Result<Figure> {
    let mut table = LayoutTable::default();
    table.register(local.clone())?;
    let bytes = encode(&pull(local, 1, 32, true), compact);
    time(name, local, 1, 32, bytes, &mut table, pulls.max(100))
}

fn time(
    name: &str,
    local: &LocalLayout,
    runs: u32,
    blocks: u32,
    bytes: Vec<u8>,
    table: &mut LayoutTable,
    pulls: u32,
) -> Result<Figure> {
    let held: Vec<BlockList> =
        (0..local.groups.len()).map(|_| BlockList::run(100, blocks)).collect();
    let (limits, mut scratch) = (Limits::default(), PlanScratch::default());
    let mut times = Histogram::new(3)?;
    let mut planned = 0;
    for round in 0..pulls + pulls / 10 {
        let begin = Instant::now();
        let ToPrefill::Pull(pull) = ToPrefill::decode(&bytes, &limits)? else { unreachable!() };
        let Resolution::Ready { layout, .. } = table.resolve(&pull) else {
            anyhow::bail!("the table lost the layout");
        };
        let mut copies = Vec::new();
        for wanted in &pull.requests {
            let ends = TokenEnds::default();
            let request = BlockRequest { local: &held, remote: &wanted.groups, ends };
            layout.plan(request, &mut scratch, &mut copies)?;
        }
        std::hint::black_box(&copies);
        let took = begin.elapsed();
        planned = copies.len();
        if round >= pulls / 10 {
            times.record(took.as_nanos() as u64)?;
        }
    }
    Ok(Figure {
        name: name.into(),
        regions: local.regions.len(),
        runs,
        blocks,
        bytes: bytes.len(),
        copies: planned,
        times,
    })
}
