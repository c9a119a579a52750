//! What messages say, read with core's own reader.

use crate::history::{ConnectionId, PullFacts, ReplyFacts, What};
use bytes::Bytes;
use kvbaton_core::wire::{Limits, Pull, Reply, ToPrefill};
use std::sync::Arc;

/// The event of a message towards P: sent to an address, or come in.
#[must_use]
pub fn inbound(connection: ConnectionId, sent_to: Option<Arc<str>>, payload: &Bytes) -> What {
    match ToPrefill::decode(payload, &Limits::default()) {
        Err(_) => What::Unreadable { connection },
        Ok(ToPrefill::Pull(pull)) => {
            let pull = facts(&pull);
            match sent_to {
                Some(to) => What::PullSent { connection, to, pull },
                None => What::PullReceived { connection, pull },
            }
        }
        Ok(ToPrefill::Drop(drop)) => {
            let transfers =
                drop.transfers.into_iter().map(|(_, transfer, grant)| (transfer, grant)).collect();
            match sent_to {
                Some(to) => What::DropSent { connection, to, transfers },
                None => What::DropReceived { connection, transfers },
            }
        }
    }
}

fn facts(pull: &Pull) -> PullFacts {
    let extension = pull.extension.as_ref();
    PullFacts {
        session: pull.session.clone(),
        layout_id: pull.layout_id,
        with_layout: pull.layout.is_some(),
        ours: extension.is_some(),
        generation: extension.map(|it| it.generation),
        incarnation: extension.map(|it| it.incarnation),
        weights: extension.map(|it| it.weights.0),
        timeout_ms: extension.map_or(0, |it| it.timeout.as_millis() as u64),
        requests: pull
            .requests
            .iter()
            .map(|it| {
                let blocks = it.groups.iter().map(|group| group.len()).sum();
                (it.request_id.clone(), it.transfer_id.clone(), blocks, it.grant)
            })
            .collect(),
    }
}

/// What an answer says; `None` when it cannot be read.
#[must_use]
pub fn reply(payload: &Bytes) -> Option<ReplyFacts> {
    let reply = Reply::decode(payload, &Limits::default()).ok()?;
    Some(ReplyFacts {
        status: reply.status,
        ok: reply.ok.unwrap_or_default(),
        failed: reply.failed.unwrap_or_default(),
        layout_id: reply.layout_id,
        incarnation: reply.extension.map(|it| it.incarnation),
        message: reply.message.map(Into::into),
    })
}
