//! One pull as P answers it: any number of `CONTINUE`, then one terminal answer `[P02]`.

use crate::ids::{Incarnation, LayoutId, RequestId};
use crate::planted::{self, Bug};
use crate::sender::transfer::Reader;
use crate::time::Timestamp;
use crate::wire::{FailureReason, Reply, ReplyExtension, Settled, Status};

/// A pull with requests that have no terminal answer yet.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct PullState<L> {
    pub layout: L,
    pub reader: Reader,
    pub echo: LayoutId,
    pub deadline: Timestamp,
    /// Requests still without an answer.
    pub open: usize,
    pub ok: Vec<RequestId>,
    pub failed: Vec<(RequestId, FailureReason, Settled)>,
    pub message: Option<String>,
    /// Whether D is one of ours and reads our extension.
    pub extended: bool,
}

impl<L> PullState<L> {
    pub fn succeed(&mut self, request: RequestId) {
        self.open -= 1;
        self.ok.push(request);
    }

    pub fn fail(&mut self, request: RequestId, why: FailureReason, settled: Settled, text: String) {
        self.open -= 1;
        self.failed.push((request, why, settled));
        match &mut self.message {
            Some(message) if message.len() < 1024 => {
                message.push_str("; ");
                message.push_str(&text);
            }
            Some(_) => {}
            None => self.message = Some(text),
        }
    }

    /// Takes what has been decided since the last answer; `None` when there is nothing to say.
    pub fn take_reply(&mut self, incarnation: Incarnation, features: u64) -> Option<Reply> {
        let finished = self.open == 0;
        let news = !self.ok.is_empty() || !self.failed.is_empty();
        if !finished && (!news || planted::is(Bug::AnswersHeldBack)) {
            return None;
        }
        let ok = std::mem::take(&mut self.ok);
        let outcomes = std::mem::take(&mut self.failed);
        let failed: Vec<RequestId> = outcomes.iter().map(|(request, ..)| request.clone()).collect();
        let extension = self.extended.then_some(ReplyExtension {
            revision: crate::wire::REVISION,
            features,
            incarnation,
            outcomes,
        });
        Some(Reply {
            status: if finished { Status::Finish } else { Status::Continue },
            ok: (!ok.is_empty()).then_some(ok),
            failed: (!failed.is_empty()).then_some(failed),
            message: self.message.take(),
            layout_id: self.echo,
            extension,
        })
    }
}
