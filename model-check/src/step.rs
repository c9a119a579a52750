//! What may happen next.

use crate::network::Packet;
use crate::world::World;
use kvbaton_core::wire::{Pull, Reply};

/// A node that sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// D.
    Decode,
    /// A P rank.
    Prefill(u8),
}

/// How a message is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Loss {
    /// Nobody is told.
    Silent,
    /// D is told that its connection broke, or that nobody answers.
    Told,
    /// D is told so, but the message arrives.
    ToldButArrives,
}

/// One step of a world. Messages and writes are named by their place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// A P rank has finished a request, and holds its blocks.
    Hold(u8, u8),
    /// D loads its next requests, so many in one pull.
    Load(u8),
    /// D's engine drops a load.
    Drop(u8),
    /// P's engine gives a request up, at all its ranks.
    Release(u8),
    /// Another D's layout takes the place of ours.
    Evict,
    /// P's engine restarts.
    Restart,
    /// A node's engine wants its memory unregistered.
    Sleep(Node),
    /// Its drain is over.
    Leave(Node),
    /// It registers its memory again.
    Wake(Node),
    /// A message arrives.
    Deliver(u8),
    /// A message is lost.
    Lose(u8, Loss),
    /// A message arrives, and will once more.
    Duplicate(u8),
    /// A write's next copy reaches D.
    Land(u8),
    /// P hears that a write has landed, or that it has ended it early.
    Settle(u8),
    /// P gives a write up, and does not know whether it lands.
    FailWrite(u8),
    /// A node's next deadline comes.
    Deadline(Node),
}

fn node(node: Node) -> String {
    match node {
        Node::Decode => "D".into(),
        Node::Prefill(rank) => format!("P{rank}"),
    }
}

impl Step {
    /// The step in words, as it happens in `world`.
    #[must_use]
    pub fn words(self, world: &World) -> String {
        let packet = |at: u8| describe(world.net.get(at));
        match self {
            Self::Hold(rank, transfer) => format!("P{rank} has finished t{transfer} and holds it"),
            Self::Load(1) => "D loads its next request".into(),
            Self::Load(many) => format!("D loads its next {many} requests in one pull"),
            Self::Drop(load) => format!("D's engine drops d{load}"),
            Self::Release(transfer) => format!("P's engine releases t{transfer}"),
            Self::Evict => "P0 forgets D's layout: another D's takes its place".into(),
            Self::Restart => "P's engine restarts".into(),
            Self::Sleep(it) => format!("{} is asked to unregister", node(it)),
            Self::Leave(it) => format!("{} has drained and unregisters", node(it)),
            Self::Wake(it) => format!("{} registers its memory again", node(it)),
            Self::Deliver(at) => packet(at),
            Self::Lose(at, Loss::Silent) => format!("lost, and nobody is told: {}", packet(at)),
            Self::Lose(at, Loss::Told) => format!("lost, and D is told: {}", packet(at)),
            Self::Lose(at, Loss::ToldButArrives) => {
                format!("D is told that it is lost, but it is not: {}", packet(at))
            }
            Self::Duplicate(at) => format!("first of two: {}", packet(at)),
            Self::Land(at) => format!("bytes reach D: {}", world.describe_write(at)),
            Self::Settle(at) => format!("P hears of its end: {}", world.describe_write(at)),
            Self::FailWrite(at) => {
                format!("P gives it up, unsettled: {}", world.describe_write(at))
            }
            Self::Deadline(it) => format!("the next deadline of {} comes", node(it)),
        }
    }
}

fn describe(packet: &Packet) -> String {
    match packet {
        Packet::Pull { rank, copy, id, pull } => {
            let again = if *copy == 0 { "" } else { ", again" };
            format!("D → P{rank} pull {}{again}: {}", id.0, pull_words(pull))
        }
        Packet::Reply { rank, id, reply } => {
            format!("P{rank} → D answer to pull {}: {}", id.0, reply_words(reply))
        }
        Packet::Drop { rank, drop } => {
            let names: Vec<_> = drop.transfers.iter().map(|(name, ..)| name.as_str()).collect();
            format!("D → P{rank} drop {}", names.join(", "))
        }
        Packet::Ask => "D learns P's ranks from the bootstrap server".into(),
        Packet::Revoked(grant) => {
            format!("D's data plane has closed the grant of d{}", grant.0 - 1)
        }
        Packet::Broken(id) => format!("D hears that the connection of pull {} broke", id.0),
    }
}

fn pull_words(pull: &Pull) -> String {
    let names: Vec<_> = pull
        .requests
        .iter()
        .map(|it| {
            let release = if it.groups.is_empty() { " (release)" } else { "" };
            format!("{}{release}", it.request_id)
        })
        .collect();
    let layout = if pull.layout.is_some() { "with" } else { "without" };
    let id = pull.layout_id.0;
    format!("{}, layout id {id}, {layout} the layout", names.join(", "))
}

fn reply_words(reply: &Reply) -> String {
    let mut words = format!("{:?}", reply.status).to_uppercase();
    if !reply.layout_id.is_none() {
        words.push_str(&format!(", echoes layout id {}", reply.layout_id.0));
    }
    for name in reply.ok.iter().flatten() {
        words.push_str(&format!(", {name} sent"));
    }
    for (name, why, settled) in reply.extension.iter().flat_map(|it| &it.outcomes) {
        let settled = if *settled { "settled" } else { "unsettled" };
        words.push_str(&format!(", {name} failed: {why:?}, {settled}"));
    }
    words
}
