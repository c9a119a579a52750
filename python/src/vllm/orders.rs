//! Orders as they travel from the engine's scheduler to its workers.

use kvbaton_core::blocks::BlockList;
use kvbaton_core::connector::{HoldId, Order, Orders, Source};
use kvbaton_core::ids::BlockId;
use serde::{Deserialize, Serialize};

/// Runs of blocks per group.
type Runs = Vec<Vec<(u32, u32)>>;

#[derive(Serialize, Deserialize)]
enum Told {
    Started(String, String),
    Hold { hold: u64, request: String, transfer: String, blocks: Runs, end_token: u32 },
    Abort(String),
    ReleaseAll,
    Load { request: String, transfer: String, from: From, blocks: Runs, end_token: u32 },
    Release { request: String, transfer: String, from: From },
    Drop(String),
}

#[derive(Serialize, Deserialize)]
struct From {
    engine: String,
    bootstrap: String,
}

/// Writes a step's orders; nothing for none.
pub fn encode(orders: Orders) -> Result<Vec<u8>, serde_json::Error> {
    if orders.is_empty() {
        return Ok(Vec::new());
    }
    let told: Vec<Told> = orders.into_iter().map(tell).collect();
    serde_json::to_vec(&told)
}

/// Reads them.
pub fn decode(bytes: &[u8]) -> Result<Orders, serde_json::Error> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let told: Vec<Told> = serde_json::from_slice(bytes)?;
    Ok(told.into_iter().map(hear).collect())
}

fn runs(blocks: &[BlockList]) -> Runs {
    let group = |list: &BlockList| list.runs().iter().map(|run| (run.start.0, run.len)).collect();
    blocks.iter().map(group).collect()
}

fn lists(runs: Runs) -> Vec<BlockList> {
    let group = |runs: Vec<(u32, u32)>| {
        let mut list = BlockList::new();
        runs.into_iter().for_each(|(start, len)| list.push_run(BlockId(start), len));
        list
    };
    runs.into_iter().map(group).collect()
}

fn from(source: &Source) -> From {
    From { engine: source.engine.to_string(), bootstrap: source.bootstrap.to_string() }
}

fn source(from: From) -> Source {
    Source { engine: from.engine.into(), bootstrap: from.bootstrap.into() }
}

fn tell(order: Order) -> Told {
    match order {
        Order::Started { request, transfer } => {
            Told::Started(request.to_string(), transfer.to_string())
        }
        Order::Hold { hold, request, transfer, blocks, end_token } => Told::Hold {
            hold: hold.0,
            request: request.to_string(),
            transfer: transfer.to_string(),
            blocks: runs(&blocks),
            end_token,
        },
        Order::Abort(transfer) => Told::Abort(transfer.to_string()),
        Order::ReleaseAll => Told::ReleaseAll,
        Order::Load { request, transfer, source, blocks, end_token } => Told::Load {
            request: request.to_string(),
            transfer: transfer.to_string(),
            from: from(&source),
            blocks: runs(&blocks),
            end_token,
        },
        Order::Release { request, transfer, source } => Told::Release {
            request: request.to_string(),
            transfer: transfer.to_string(),
            from: from(&source),
        },
        Order::Drop(request) => Told::Drop(request.to_string()),
    }
}

fn hear(told: Told) -> Order {
    match told {
        Told::Started(request, transfer) => {
            Order::Started { request: request.into(), transfer: transfer.into() }
        }
        Told::Hold { hold, request, transfer, blocks, end_token } => Order::Hold {
            hold: HoldId(hold),
            request: request.into(),
            transfer: transfer.into(),
            blocks: lists(blocks),
            end_token,
        },
        Told::Abort(transfer) => Order::Abort(transfer.into()),
        Told::ReleaseAll => Order::ReleaseAll,
        Told::Load { request, transfer, from, blocks, end_token } => Order::Load {
            request: request.into(),
            transfer: transfer.into(),
            source: source(from),
            blocks: lists(blocks),
            end_token,
        },
        Told::Release { request, transfer, from } => Order::Release {
            request: request.into(),
            transfer: transfer.into(),
            source: source(from),
        },
        Told::Drop(request) => Order::Drop(request.into()),
    }
}
