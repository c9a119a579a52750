//! Answers of every kind, fitting or not.

use super::World;
use crate::campaign::{Check, Trace};
use kvbaton_core::ids::{LayoutId, RequestId};
use kvbaton_core::wire::{FailureReason, Reply, ReplyExtension, Status};

const REASONS: [FailureReason; 5] = [
    FailureReason::Aborted,
    FailureReason::UnknownIncarnation,
    FailureReason::WriteFailed,
    FailureReason::TimedOut,
    FailureReason::OtherWeights,
];

impl World {
    pub(super) fn reply(&mut self, which: usize, pick: usize, how: u8, trace: &mut Trace) -> Check {
        let Some(pull) = self.pick_pull(pick) else { return Ok(()) };
        let open = self.receiver.open_requests(pull);
        let reply = self.make(&open, which, how);
        trace.step(|| {
            let names = |names: &Option<Vec<RequestId>>| {
                let names = names.iter().flatten().map(|name| name.as_str());
                names.collect::<Vec<_>>().join(" ")
            };
            format!(
                "pull {}: {:?}, ok [{}], failed [{}], echo {}, {:?}",
                pull.0,
                reply.status,
                names(&reply.ok),
                names(&reply.failed),
                reply.layout_id.0,
                reply.extension.as_ref().map(|it| &it.outcomes),
            )
        });
        self.receiver.reply(pull, reply, self.now)
    }

    fn make(&self, open: &[RequestId], which: usize, how: u8) -> Reply {
        let status = match how % 16 {
            0 | 1 => Status::LayoutMiss,
            2 => Status::Error,
            3..=7 => Status::Continue,
            _ => Status::Finish,
        };
        let mut reply = Reply {
            status,
            ok: None,
            failed: None,
            message: None,
            layout_id: self.echo(which),
            extension: (which % 8 != 3).then(ReplyExtension::default),
        };
        if matches!(status, Status::LayoutMiss | Status::Error) {
            return reply;
        }
        let mut ok = Vec::new();
        let mut failed = Vec::new();
        for (at, name) in open.iter().enumerate() {
            match usize::from(how) / 16 + at * (1 + which % 3) {
                0..=8 => ok.push(name.clone()),
                9..=11 => failed.push(name.clone()),
                _ => {}
            }
        }
        // Now and then about a request that was never in the pull.
        if which % 32 == 31 {
            ok.push(self.names.requests[which / 32].clone());
        }
        let reason = REASONS[which / 8 % REASONS.len()];
        if let Some(extension) = &mut reply.extension {
            let settled = which.is_multiple_of(2);
            extension.outcomes = failed.iter().map(|it| (it.clone(), reason, settled)).collect();
        }
        reply.ok = (!ok.is_empty()).then_some(ok);
        reply.failed = (!failed.is_empty()).then_some(failed);
        reply
    }

    /// The current layout id, an older one, or none.
    fn echo(&self, which: usize) -> LayoutId {
        match which / 64 {
            0 | 1 => LayoutId::from_random(self.registrations * 2),
            2 => LayoutId::from_random(self.registrations.saturating_sub(1) * 2),
            _ => LayoutId::NONE,
        }
    }
}
