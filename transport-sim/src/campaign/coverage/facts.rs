//! Things that must happen now and then: a campaign that never sees one tests less than it
//! seems to.

use crate::history::{Answer, ConnectionId, Event, Lane, LoadFact, NodeId, SendFact, What};
use crate::history::{WriteEnd, WriteName};
use kvbaton_core::ids::{Grant, LayoutId, RequestId, TransferId};
use kvbaton_core::lifecycle::engine::{OperationError, Outcome};
use kvbaton_core::receiver::LoadFailureReason;
use kvbaton_core::wire::{FailureReason, Status};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Facts without a reason in their name.
const PLAIN: [&str; 57] = [
    "pull with layout",
    "pull without layout",
    "pull from a stock peer",
    "duplicate pull",
    "pull before prefill",
    "prefill before pull",
    "layout miss",
    "resend after miss",
    "stale echo",
    "late answer",
    "whole pull refused",
    "message lost",
    "unreadable message",
    "connection broken",
    "drop received",
    "drop before its pull",
    "release before its hold",
    "release while held",
    "release while written",
    "hold refused",
    "load refused",
    "load without rows",
    "load dropped",
    "remote release",
    "grant open to stock peers",
    "revoke while a write was landing",
    "write refused",
    "write landed in old pages",
    "write rejected",
    "write failed, settled",
    "write failed, not settled",
    "panic caught",
    "killed",
    "restarted",
    "stopped",
    "paused",
    "sleep",
    "sleep failed",
    "wake",
    "weights updated",
    "layouts at their bound",
    "compared bytes",
    "client left",
    "retry",
    "operation done",
    "operation: busy",
    "operation: resumed",
    "operation: not possible",
    "operation: timed out",
    "operation: failed",
    "operation: not undone",
    "operation: stopped",
    "reset refused",
    "order failed",
    "answer: tokens",
    "answer: load failed",
    "answer: lost",
];

/// Every name of a fact.
pub(super) fn names() -> Vec<String> {
    let prefill = [
        FailureReason::Aborted,
        FailureReason::Released,
        FailureReason::Expired,
        FailureReason::TimedOut,
        FailureReason::UnknownIncarnation,
        FailureReason::WriteFailed,
        FailureReason::BlocksDiffer,
        FailureReason::Dropped,
        FailureReason::AlreadyUsed,
        FailureReason::Unavailable,
        FailureReason::Overloaded,
        FailureReason::Reset,
        FailureReason::OtherWeights,
    ];
    let load = [
        LoadFailureReason::UnknownEngine,
        LoadFailureReason::Incompatible,
        LoadFailureReason::Refused,
        LoadFailureReason::Unreachable,
        LoadFailureReason::TimedOut,
        LoadFailureReason::Unregistered,
        LoadFailureReason::Reset,
        LoadFailureReason::WeightsUpdated,
    ];
    let load = load.into_iter().chain(prefill.map(LoadFailureReason::Prefill));
    let mut names: Vec<_> = PLAIN.iter().map(|it| (*it).to_owned()).collect();
    names.extend(load.map(|it| format!("load failed: {it:?}")));
    names.extend(["load ended: Loaded".into(), "load ended: Dropped".into()]);
    names.push("send ended: Sent".into());
    names.extend(prefill.map(|it| format!("send ended: {it:?}")));
    names
}

/// Counts them over one run.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub counts: BTreeMap<String, u64>,
    held: BTreeSet<(NodeId, TransferId)>,
    pulled: BTreeSet<(NodeId, TransferId)>,
    seen: BTreeSet<(NodeId, ConnectionId)>,
    current: BTreeMap<NodeId, LayoutId>,
    missed: BTreeSet<(NodeId, Arc<str>)>,
    writes: BTreeMap<WriteName, Option<Grant>>,
    loading: BTreeSet<(NodeId, RequestId)>,
}

impl Facts {
    fn count(&mut self, fact: &str) {
        debug_assert!(fact.contains(": ") || PLAIN.contains(&fact), "{fact} is not listed");
        if let Some(count) = self.counts.get_mut(fact) {
            *count += 1;
        } else {
            self.counts.insert(fact.to_owned(), 1);
        }
    }

    pub fn observe(&mut self, event: &Event) {
        if let Lane::Node(node) = event.lane {
            self.message(node, &event.what);
            self.transfer(node, &event.what);
        }
        self.plain(&event.what);
    }

    /// Control messages.
    fn message(&mut self, node: NodeId, what: &What) {
        match what {
            What::PullSent { to, pull, .. } => {
                self.current.insert(node, pull.layout_id);
                self.count(if pull.with_layout {
                    "pull with layout"
                } else {
                    "pull without layout"
                });
                if self.missed.remove(&(node, to.clone())) && pull.with_layout {
                    self.count("resend after miss");
                }
            }
            What::PullReceived { connection, pull } => {
                if !self.seen.insert((node, *connection)) {
                    self.count("duplicate pull");
                }
                if !pull.ours {
                    self.count("pull from a stock peer");
                }
                for (_, transfer, ..) in &pull.requests {
                    let key = (node, transfer.clone());
                    let held = self.held.contains(&key);
                    self.count(if held { "prefill before pull" } else { "pull before prefill" });
                    self.pulled.insert(key);
                }
            }
            What::ReplyReceived { from, reply, .. } => {
                match reply.status {
                    Status::LayoutMiss => {
                        self.count("layout miss");
                        self.missed.insert((node, from.clone()));
                    }
                    Status::Error => self.count("whole pull refused"),
                    Status::Finish | Status::Continue => {}
                }
                let current = self.current.get(&node).copied().unwrap_or_default();
                if !reply.layout_id.is_none() && reply.layout_id != current {
                    self.count("stale echo");
                }
                let mut named = reply.ok.iter().chain(&reply.failed);
                if named.any(|it| !self.loading.contains(&(node, it.clone()))) {
                    self.count("late answer");
                }
            }
            What::DropReceived { transfers, .. } => {
                self.count("drop received");
                for (transfer, _) in transfers {
                    if !self.pulled.contains(&(node, transfer.clone())) {
                        self.count("drop before its pull");
                    }
                }
            }
            _ => {}
        }
    }

    /// Holds, loads, writes.
    fn transfer(&mut self, node: NodeId, what: &What) {
        match what {
            What::Held { transfer, .. } => drop(self.held.insert((node, transfer.clone()))),
            What::ReleaseAsked { transfer } => {
                let held = self.held.contains(&(node, transfer.clone()));
                self.count(if held { "release while held" } else { "release before its hold" });
                if held && self.writes.keys().any(|it| it.from == node) {
                    self.count("release while written");
                }
            }
            What::SendEnded { transfer, ended, .. } => {
                self.held.remove(&(node, transfer.clone()));
                match ended {
                    SendFact::Sent => self.count("send ended: Sent"),
                    SendFact::Failed(why) => self.count(&format!("send ended: {why}")),
                }
            }
            What::LoadAsked { request, rows, .. } => {
                self.loading.insert((node, request.clone()));
                if rows.is_empty() {
                    self.count("load without rows");
                }
            }
            What::LoadEnded { request, end, .. } => {
                self.loading.remove(&(node, request.clone()));
                match end {
                    LoadFact::Loaded => self.count("load ended: Loaded"),
                    LoadFact::Dropped => self.count("load ended: Dropped"),
                    LoadFact::Failed(why) => self.count(&format!("load failed: {}", why.reason)),
                }
            }
            What::WriteStarted { write, grant, .. } => drop(self.writes.insert(*write, *grant)),
            What::WriteEnded { write, how } => {
                self.writes.remove(write);
                match how {
                    WriteEnd::Written => {}
                    WriteEnd::Rejected(_) => self.count("write rejected"),
                    WriteEnd::Failed { settled: true, .. } => self.count("write failed, settled"),
                    WriteEnd::Failed { .. } => self.count("write failed, not settled"),
                }
            }
            What::RevokeAsked { grant } if self.writes.values().any(|it| *it == Some(*grant)) => {
                self.count("revoke while a write was landing");
            }
            What::Started { .. } if node.life > 0 => self.count("restarted"),
            _ => {}
        }
    }

    /// What needs no memory.
    fn plain(&mut self, what: &What) {
        let fact = match what {
            What::Killed => "killed",
            What::Stopped => "stopped",
            What::Panicked(_) => "panic caught",
            What::GrantOpened { ungranted: true, .. } => "grant open to stock peers",
            What::Landed { seen: false, .. } => "write landed in old pages",
            What::Refused { .. } => "write refused",
            What::Unreadable { .. } => "unreadable message",
            What::ConnectionBroken { .. } => "connection broken",
            What::MessageLost { .. } => "message lost",
            What::HoldRefused { .. } => "hold refused",
            What::LoadRefused { .. } => "load refused",
            What::LoadDropped { .. } => "load dropped",
            What::RemoteReleaseAsked { .. } => "remote release",
            What::OperationEnded { end, .. } => match end {
                Ok(Outcome::Reset { done: false, .. }) => "reset refused",
                Ok(_) => "operation done",
                Err(OperationError::Busy { .. }) => "operation: busy",
                Err(OperationError::Resumed { .. }) => "operation: resumed",
                Err(OperationError::NotPossible { .. }) => "operation: not possible",
                Err(OperationError::TimedOut { .. }) => "operation: timed out",
                Err(OperationError::Failed { .. }) => "operation: failed",
                Err(OperationError::NotUndone { .. }) => "operation: not undone",
                Err(OperationError::Stopped) => "operation: stopped",
            },
            What::OrderDone { failed: Some(_), .. } => "order failed",
            What::Paused { .. } => "paused",
            What::Slept => "sleep",
            What::SleepFailed { .. } => "sleep failed",
            What::Woke => "wake",
            What::WeightsUpdated { .. } => "weights updated",
            What::Compared { .. } => "compared bytes",
            What::Submitted { attempt: 1.., .. } => "retry",
            What::Disconnected { .. } => "client left",
            What::Answered { answer: Answer::Tokens { .. }, .. } => "answer: tokens",
            What::Answered { answer: Answer::LoadFailed, .. } => "answer: load failed",
            What::Answered { answer: Answer::Lost(_), .. } => "answer: lost",
            What::Tables(it) if it.layouts_bound > 0 && it.layouts == it.layouts_bound => {
                "layouts at their bound"
            }
            _ => return,
        };
        self.count(fact);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{PullFacts, ReplyFacts};
    use kvbaton_core::ids::SessionAddress;

    const P: NodeId = NodeId { engine: 0, rank: 0, life: 0 };
    const D: NodeId = NodeId { engine: 1, rank: 0, life: 0 };
    const C: ConnectionId = ConnectionId(1);

    fn pull(layout_id: u64, with_layout: bool) -> PullFacts {
        PullFacts {
            session: SessionAddress { host: "d".into(), port: 1 },
            layout_id: LayoutId(layout_id),
            with_layout,
            ours: true,
            generation: None,
            incarnation: None,
            weights: None,
            timeout_ms: 0,
            requests: vec![("r".into(), "t".into(), 1, Some(Grant(1)))],
        }
    }

    fn sent(layout_id: u64, with_layout: bool) -> What {
        What::PullSent { connection: C, to: "p".into(), pull: pull(layout_id, with_layout) }
    }

    fn answer(status: Status, layout_id: u64) -> What {
        let reply = ReplyFacts {
            status,
            ok: Vec::new(),
            failed: Vec::new(),
            layout_id: LayoutId(layout_id),
            incarnation: None,
            message: None,
        };
        What::ReplyReceived { connection: C, from: "p".into(), reply }
    }

    fn facts(whats: Vec<(NodeId, What)>) -> BTreeMap<String, u64> {
        let mut facts = Facts::default();
        for (node, what) in whats {
            facts.observe(&Event { at: 0, lane: Lane::Node(node), what });
        }
        facts.counts
    }

    #[test]
    fn l05_a_miss_and_the_resend_after_it_are_seen() {
        let miss = answer(Status::LayoutMiss, 0);
        let seen = facts(vec![(D, sent(5, false)), (D, miss.clone()), (D, sent(5, true))]);
        assert_eq!((seen["layout miss"], seen["resend after miss"]), (1, 1));
        let seen = facts(vec![(D, sent(5, false)), (D, miss)]);
        assert!(!seen.contains_key("resend after miss"));
    }

    #[test]
    fn l10_an_echo_of_an_older_id_is_stale() {
        let echo = |id| (D, answer(Status::Finish, id));
        let (first, second) = ((D, sent(5, true)), (D, sent(7, true)));
        let seen = facts(vec![first, echo(5), second, echo(5), echo(5), echo(7), echo(0)]);
        assert_eq!(seen["stale echo"], 2);
    }

    #[test]
    fn a_pull_that_comes_twice_and_before_its_blocks() {
        let received = || (P, What::PullReceived { connection: C, pull: pull(5, true) });
        let seen = facts(vec![received(), received()]);
        assert_eq!((seen["duplicate pull"], seen["pull before prefill"]), (1, 2));
    }

    #[test]
    fn g02_a_revoke_meets_a_write_under_its_grant() {
        let write = WriteName { from: P, number: 1 };
        let started = What::WriteStarted {
            write,
            to: SessionAddress { host: "d".into(), port: 1 },
            grant: Some(Grant(1)),
            generation: None,
            reads: Vec::new(),
            bytes: 1,
        };
        let revoke = |grant| (D, What::RevokeAsked { grant: Grant(grant) });
        let seen = facts(vec![(P, started), revoke(2), revoke(1)]);
        assert_eq!(seen["revoke while a write was landing"], 1);
    }

    #[test]
    fn every_counted_fact_is_listed() {
        let names = names();
        let unique: BTreeSet<_> = names.iter().collect();
        assert_eq!(unique.len(), names.len());
        assert!(names.contains(&"load failed: Prefill(Expired)".to_owned()));
    }
}
