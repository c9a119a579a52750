//! Layouts: tensors to regions, regions to prepared layouts, blocks to copies.

mod oracle;
mod sides;

use crate::campaign::{Campaign, Check, Trace};
use crate::choices::Choices;
use crate::ensure;
use crate::wire::make;
use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::BlockId;
use kvbaton_core::layout::Layout;
use kvbaton_core::plan::{
    BlockRequest, LocalLayout, PeerTopology, PlanScratch, PreparedLayout, TokenEnds,
};
use kvbaton_core::region::Copy;
use kvbaton_core::wire::{LayoutColumns, LayoutExtension};
use sides::{Model, any_tensor, lists};

/// The campaign.
pub const CAMPAIGN: Campaign = Campaign {
    name: "layout",
    about: "tensors and columns, fitting, bent or random: built, aligned and planned",
    bytes: 8..200,
    step_bytes: 1,
    run,
};

const UNKNOWN: TokenEnds = TokenEnds { producer: None, consumer: None };

fn run(choices: &mut Choices<'_>, trace: &mut Trace) -> Check {
    match choices.byte() % 8 {
        0 => {
            let tensors: Vec<_> = (0..1 + choices.below(3)).map(|_| any_tensor(choices)).collect();
            let (blocks, ratio) = (choices.number(), choices.number() as u32);
            trace.step(|| format!("build {blocks} blocks of {ratio} rows from {tensors:x?}"));
            if let Ok(layout) = Layout::build(&tensors, blocks, ratio) {
                drop(layout.to_columns());
            }
            Ok(())
        }
        1..=3 => hostile(choices, trace),
        _ => fitting(choices, trace),
    }
}

/// Both sides as their engines describe them; every P rank's plan for one D rank.
fn fitting(choices: &mut Choices<'_>, trace: &mut Trace) -> Check {
    let model = Model::new(choices);
    let d_rank = choices.below(model.sizes.1 as usize) as u32;
    trace.step(|| format!("D rank {d_rank} of {model:?}"));
    let Ok(d) = model.side(false, d_rank) else { return Ok(()) };
    let columns = columns_of(&d, choices.flip());
    let peer = PeerTopology { tp_rank: d_rank, tp_size: model.sizes.1, pp_size: 1 };
    let (ours, theirs) = model.blocks(choices);
    trace.note(|| format!("P's blocks {ours:?}, D's {theirs:?}"));
    let ranks = d.topology.paired_tp_ranks(model.sizes.0);
    ensure!(ranks.is_ok(), "A04", "sizes {:?} divide: {ranks:?}", model.sizes);
    let mut copies = Vec::new();
    let mut first = None;
    for rank in ranks.into_iter().flatten() {
        let Ok(p) = model.side(true, rank) else { return Ok(()) };
        trace.step(|| format!("P rank {rank} plans"));
        let prepared = match PreparedLayout::prepare(&p, peer, &columns) {
            Ok(prepared) => prepared,
            Err(why) => {
                trace.note(|| format!("incompatible: {why}"));
                return Ok(());
            }
        };
        let request = BlockRequest { local: &lists(&ours), remote: &lists(&theirs), ends: UNKNOWN };
        let before = copies.len();
        if let Err(why) = prepared.plan(request, &mut PlanScratch::default(), &mut copies) {
            ensure!(copies.len() == before, "A09", "copies are left of a plan that failed");
            trace.note(|| format!("refused: {why}"));
            return oracle_refuses(&model, &p, &d, &ours, &theirs, &why.to_string());
        }
        trace.note(|| format!("copies {:x?}", &copies[before..]));
        first.get_or_insert(p);
    }
    let Some(p) = first else { return Ok(()) };
    let wants = theirs.iter().any(|blocks| !blocks.is_empty());
    let held = oracle::check(&model, &p, &d, (&ours, &theirs), &copies)?;
    ensure!(held || !wants, "A06", "a plan though P holds fewer blocks");
    Ok(())
}

/// These blocks are distinct and in range: only too few of them may be refused `[A06]`.
fn oracle_refuses(
    model: &Model,
    p: &LocalLayout,
    d: &LocalLayout,
    ours: &[Vec<u32>],
    theirs: &[Vec<u32>],
    why: &str,
) -> Check {
    // Without copies the oracle complains of what is not covered, or says that it is short.
    let held = oracle::check(model, p, d, (ours, theirs), &[]).unwrap_or(true);
    ensure!(!held, "A06", "refused: {why}");
    Ok(())
}

/// P is well, D's columns are random or bent.
fn hostile(choices: &mut Choices<'_>, trace: &mut Trace) -> Check {
    let model = Model::new(choices);
    let Ok(p) = model.side(true, 0) else { return Ok(()) };
    let mut columns = match (choices.below(4), model.side(false, 0)) {
        (0, _) | (_, Err(_)) => make::columns(choices),
        (_, Ok(d)) => columns_of(&d, choices.flip()),
    };
    for _ in 0..choices.below(5) {
        bend(&mut columns, choices);
    }
    let peer = PeerTopology {
        tp_rank: choices.below(3) as u32,
        tp_size: choices.one_of(&[model.sizes.1, model.sizes.1, 0, 1, 3]),
        pp_size: choices.one_of(&[1, 1, 0, 2]),
    };
    trace.step(|| format!("{peer:?} sends {columns:x?} to {p:x?}"));
    let prepared = match PreparedLayout::prepare(&p, peer, &columns) {
        Ok(prepared) => prepared,
        Err(why) => {
            trace.note(|| format!("incompatible: {why}"));
            return Ok(());
        }
    };
    let memory = columns.extension.map(|it| it.memory).unwrap_or_default();
    while !choices.is_over() {
        let (ours, _) = model.blocks(choices);
        let count = if choices.below(8) == 0 { choices.below(4) } else { model.group_count() };
        let theirs: Vec<BlockList> = (0..count).map(|_| any_blocks(choices)).collect();
        let end = |it: &mut Choices<'_>| it.flip().then_some(it.number() as u32);
        let ends = TokenEnds { producer: end(choices), consumer: end(choices) };
        trace.step(|| format!("plan {ours:?} to {theirs:?}, ends {ends:?}"));
        let mut copies: Vec<Copy> = Vec::new();
        let request = BlockRequest { local: &lists(&ours), remote: &theirs, ends };
        if prepared.plan(request, &mut PlanScratch::default(), &mut copies).is_ok() {
            trace.note(|| format!("copies {copies:x?}"));
            oracle::check_hostile(&p, &memory, &copies)?;
        }
    }
    Ok(())
}

/// What a side sends; with its memory's bounds when it is ours.
fn columns_of(side: &LocalLayout, ours: bool) -> LayoutColumns {
    let layout = Layout { regions: side.regions.clone(), ..Layout::default() };
    let mut columns = layout.to_columns();
    columns.extension =
        ours.then(|| LayoutExtension { memory: side.memory.clone(), ..LayoutExtension::default() });
    columns
}

fn any_blocks(choices: &mut Choices<'_>) -> BlockList {
    let mut list = BlockList::new();
    for _ in 0..choices.below(4) {
        let start = if choices.below(8) == 0 { choices.number() } else { choices.below(14) as u64 };
        let len = if choices.below(16) == 0 { choices.number() } else { choices.below(4) as u64 };
        let room = (1u64 << 32) - (start & 0xffff_ffff);
        list.push_run(BlockId(start as u32), len.min(room).min(u64::from(u32::MAX)) as u32);
    }
    list
}

/// One value of one column becomes another, or the column another length.
fn bend(columns: &mut LayoutColumns, choices: &mut Choices<'_>) {
    let at = choices.below(8);
    let what = choices.below(10);
    let value = choices.number();
    let set = |list: &mut Vec<u64>| {
        if let Some(it) = list.get_mut(at) {
            *it = value;
        }
    };
    let set_signed = |list: &mut Vec<i64>| {
        if let Some(it) = list.get_mut(at) {
            *it = value as i64;
        }
    };
    match what {
        0 => set(&mut columns.base_addrs),
        1 => set(&mut columns.block_lens),
        2 => set(&mut columns.kv_block_lens),
        3 => set_signed(&mut columns.layer_indices),
        4 => set_signed(&mut columns.group_indices),
        5 => set_signed(&mut columns.row_offsets),
        6 => drop(columns.kv_block_lens.pop()),
        7 => columns.group_indices.clear(),
        8 => drop(columns.layer_names.get_mut(at).map(|name| name.push('x'))),
        _ => {
            if let Some(extension) = &mut columns.extension
                && let Some(range) = extension.memory.get_mut(at % 2)
            {
                range.len.0 = value;
            }
        }
    }
}
