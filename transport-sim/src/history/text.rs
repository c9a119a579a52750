//! Events as one line each, for logs and pages.

use super::{
    Answer, Event, Lane, LoadFact, NodeId, PullFacts, ReplyFacts, SendFact, What, WriteEnd,
    WriteName,
};
use kvbaton_core::ids::{Grant, TransferId};
use kvbaton_core::region::MemoryRange;
use std::fmt;

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e{}.r{}", self.engine, self.rank)?;
        if self.life > 0 { write!(f, "#{}", self.life) } else { Ok(()) }
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::World => f.write_str("world"),
            Self::Clients => f.write_str("clients"),
            Self::Engine(engine) => write!(f, "e{engine}"),
            Self::Node(node) => node.fmt(f),
        }
    }
}

impl fmt::Display for WriteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "w{}@{}", self.number, self.from)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ms, us) = (self.at / 1_000_000, self.at / 1_000 % 1_000);
        write!(f, "{ms:>7}.{us:03} {:<9} {}", self.lane.to_string(), self.what)
    }
}

impl fmt::Display for PullFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = if self.ours { "compact" } else { "stock" };
        let layout = if self.with_layout { "with layout" } else { "without layout" };
        write!(f, "{form} pull {layout} {:x} for", self.layout_id.0)?;
        for (request, transfer, blocks, _) in &self.requests {
            write!(f, " {request} ({transfer}, {blocks} blocks)")?;
        }
        Ok(())
    }
}

impl fmt::Display for ReplyFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} echo {:x}", self.status, self.layout_id.0)?;
        self.ok.iter().try_for_each(|it| write!(f, " ok {it}"))?;
        self.failed.iter().try_for_each(|it| write!(f, " failed {it}"))?;
        self.message.iter().try_for_each(|it| write!(f, " ({it})"))
    }
}

impl fmt::Display for WriteEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Written => f.write_str("written"),
            Self::Rejected(why) => write!(f, "rejected: {why}"),
            Self::Failed { settled, why } => {
                write!(f, "failed, {}: {why}", if *settled { "settled" } else { "not settled" })
            }
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tokens { tokens, expected } if expected.contains(tokens) => {
                write!(f, "{} right tokens", tokens.len())
            }
            Self::Tokens { tokens, expected } => write!(f, "{tokens:?}, expected {expected:?}"),
            Self::LoadFailed => f.write_str("its load failed"),
            Self::Lost(why) => write!(f, "lost: {why}"),
            Self::Aborted => f.write_str("aborted"),
        }
    }
}

struct Dropped<'a>(&'a [(TransferId, Grant)]);

impl fmt::Display for Dropped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(transfer, grant)| write!(f, " {transfer} ({grant})"))
    }
}

struct Rows<'a>(&'a [MemoryRange]);

impl fmt::Display for Rows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (index, row) in self.0.iter().enumerate() {
            let space = if index > 0 { " " } else { "" };
            write!(f, "{space}{:x}+{}", row.start.0, row.len)?;
        }
        f.write_str("]")
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Happens { begins, text, .. } => {
                write!(f, "{text} {}", if *begins { "begins" } else { "ends" })
            }
            Self::SiteFired(site) => write!(f, "site {site} fires"),
            Self::Healed => f.write_str("all faults are over"),
            Self::Started { stock, session, .. } => {
                write!(f, "started{} at {session}", if *stock { " (stock)" } else { "" })
            }
            Self::Killed => f.write_str("killed"),
            Self::Stopped => f.write_str("stopped"),
            Self::Continued => f.write_str("continued"),
            Self::Panicked(text) => write!(f, "panicked: {text}"),
            Self::Registered { generation } => write!(f, "registered {generation}"),
            Self::Unregistering { generation } => write!(f, "unregisters {generation}"),
            Self::Unregistered { generation } => write!(f, "unregistered {generation}"),
            Self::Unmapped => f.write_str("memory unmapped"),
            Self::Mapped => f.write_str("memory mapped to new pages"),
            Self::GrantOpened { grant, rows, ungranted, .. } => {
                let open = if *ungranted { ", open to stock" } else { "" };
                write!(f, "grant {grant} open for {}{open}", Rows(rows))
            }
            Self::RevokeAsked { grant } => write!(f, "revokes {grant}"),
            Self::Revoked { grant } => write!(f, "revoked {grant}"),
            Self::WriteStarted { write, to, bytes, reads, .. } => {
                write!(f, "{write} starts: {bytes} bytes of {} to {to}", Rows(reads))
            }
            Self::WriteEnded { write, how } => write!(f, "{write} ends: {how}"),
            Self::Landed { write, ranges, seen, .. } => {
                let unseen = if *seen { "" } else { " in old pages" };
                write!(f, "{write} lands{unseen} at {}", Rows(ranges))
            }
            Self::Refused { write, why } => write!(f, "{write} refused: {why}"),
            Self::PullSent { connection, to, pull } => {
                write!(f, "→ c{} {to} {pull}", connection.0)
            }
            Self::PullReceived { connection, pull } => write!(f, "← c{} {pull}", connection.0),
            Self::ReplySent { connection, reply } => write!(f, "→ c{} {reply}", connection.0),
            Self::ReplyReceived { connection, from, reply } => {
                write!(f, "← c{} {from} {reply}", connection.0)
            }
            Self::DropSent { connection, to, transfers } => {
                write!(f, "→ c{} {to} drop{}", connection.0, Dropped(transfers))
            }
            Self::DropReceived { connection, transfers } => {
                write!(f, "← c{} drop{}", connection.0, Dropped(transfers))
            }
            Self::Unreadable { connection } => write!(f, "c{} unreadable", connection.0),
            Self::ConnectionClosed { connection } => write!(f, "c{} closed", connection.0),
            Self::ConnectionBroken { connection } => write!(f, "c{} broken", connection.0),
            Self::MessageLost { connection } => write!(f, "a message on c{} is lost", connection.0),
            Self::Held { request, transfer, rows, .. } => {
                write!(f, "holds {request} for {transfer}: {}", Rows(rows))
            }
            Self::PrefillStarted { request, transfer } => {
                write!(f, "takes {request} for {transfer}")
            }
            Self::HoldRefused { request, why, .. } => write!(f, "hold of {request} refused: {why}"),
            Self::ReleaseAsked { transfer } => write!(f, "releases {transfer}"),
            Self::SendEnded { request, ended: SendFact::Sent, .. } => write!(f, "{request} sent"),
            Self::SendEnded { request, ended: SendFact::Failed(why), .. } => {
                write!(f, "{request} not sent: {why}")
            }
            Self::LoadAsked { request, transfer, rows, .. } => {
                write!(f, "loads {request} of {transfer} into {}", Rows(rows))
            }
            Self::LoadRefused { request, why, .. } => write!(f, "load of {request} refused: {why}"),
            Self::LoadDropped { request } => write!(f, "drops the load of {request}"),
            Self::LoadEnded { request, end, .. } => match end {
                LoadFact::Loaded => write!(f, "{request} loaded"),
                LoadFact::Dropped => write!(f, "{request} dropped"),
                LoadFact::Failed(why) => {
                    write!(f, "{request} failed to load: {} ({})", why.message, why.reason)
                }
            },
            Self::RemoteReleaseAsked { request, transfer } => {
                write!(f, "tells P to release {transfer} of {request}")
            }
            Self::OperationAsked { id, what } => write!(f, "operation {id}: {what:?}"),
            Self::OperationEnded { id, end: Ok(outcome) } => {
                write!(f, "operation {id}: {outcome:?}")
            }
            Self::OperationEnded { id, end: Err(error) } => write!(f, "operation {id}: {error}"),
            Self::EngineTold { number, order } => write!(f, "order {number}: {order:?}"),
            Self::RankTold { number, order } => write!(f, "order {number}: {order:?}"),
            Self::OrderDone { number, failed: None } => write!(f, "order {number} is done"),
            Self::OrderDone { number, failed: Some(why) } => {
                write!(f, "order {number} failed: {why}")
            }
            Self::WeightsSet { version } => write!(f, "runs weights {version}"),
            Self::Paused { mode } => write!(f, "paused ({mode})"),
            Self::Resumed => f.write_str("resumed"),
            Self::SleepAsked => f.write_str("is to sleep"),
            Self::Slept => f.write_str("sleeps"),
            Self::SleepFailed { why } => write!(f, "cannot sleep: {why}"),
            Self::Woke => f.write_str("woke"),
            Self::WeightsUpdated { version } => write!(f, "weights {version}"),
            Self::Compared { request, bytes, different } => {
                write!(f, "{request}: {different} of {bytes} bytes differ")
            }
            Self::Submitted { request, attempt, prefill, decode } => {
                write!(f, "request {request} (try {attempt}) to e{prefill} and e{decode}")
            }
            Self::Disconnected { request } => write!(f, "client of request {request} leaves"),
            Self::Answered { request, attempt, answer } => {
                write!(f, "request {request} (try {attempt}): {answer}")
            }
            Self::Tables(tables) => write!(f, "{tables:?}"),
            Self::Leftovers(left) if left.is_empty() => f.write_str("everything came back"),
            Self::Leftovers(left) => write!(f, "left over: {}", left.join("; ")),
            Self::Ended => f.write_str("end"),
        }
    }
}
