//! A sender beside its reference model: every input goes to both, and what comes out of
//! the one is compared with what the other asks for.

use super::effects::Effect;
use super::inputs::Taken;
use super::model::{Foretold, Model, Stage};
use crate::campaign::Check;
use crate::ensure;
use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::{Incarnation, RequestId, TransferId, WeightVersion};
use kvbaton_core::sender::{
    PlanCopies, PullId, ResolvedPull, SendError, SendWriteId, Sender, SenderAction, SenderConfig,
    StartWrite, WriteResult,
};
use kvbaton_core::time::Timestamp;
use kvbaton_core::wire::{DropTransfers, FailureReason, Reply, Status};

/// A layout whose plans can be foretold.
pub trait Foretell: PlanCopies + Clone {
    /// What planning `wanted` blocks out of `held` ones must come to.
    fn foretell(&self) -> fn(held: u64, wanted: u64) -> Foretold;
}

/// The two, and what the sender wants done: the caller takes it from `actions`.
#[derive(Debug, Clone)]
pub struct WatchedSender<L> {
    machine: Sender<L>,
    model: Model,
    run: Incarnation,
    /// What the last inputs asked for, in order.
    pub actions: Vec<SenderAction<L>>,
}

impl<L: Foretell> WatchedSender<L> {
    /// A sender of the process `run`.
    pub fn new(config: SenderConfig, run: Incarnation) -> Self {
        Self {
            machine: Sender::new(config.clone(), run, 0),
            model: Model::new(config),
            run,
            actions: Vec::new(),
        }
    }

    /// The sender, to be looked at.
    pub fn machine(&self) -> &Sender<L> {
        &self.machine
    }

    /// Whether an announced or held request owns the transfer.
    pub fn is_owned(&self, id: &TransferId) -> bool {
        self.model.lives.iter().any(|it| it.id == *id && it.owner.is_some())
    }

    /// Whether the transfer's blocks are with the sender.
    pub fn is_held(&self, id: &TransferId) -> bool {
        self.model.lives.iter().any(|it| it.id == *id && it.held.is_some())
    }

    pub fn prefill_started(
        &mut self,
        owner: &RequestId,
        id: &TransferId,
        now: Timestamp,
    ) -> Check<bool> {
        let taken = self.machine.prefill_started(owner.clone(), id.clone(), now);
        let must = self.model.prefill_started(owner, id, now);
        same_taken(&taken, must, owner, id)?;
        self.compare(now)?;
        Ok(taken.is_ok())
    }

    pub fn hold(
        &mut self,
        owner: &RequestId,
        id: &TransferId,
        blocks: Vec<BlockList>,
        end_token: Option<u32>,
        now: Timestamp,
    ) -> Check<bool> {
        let len = blocks.iter().map(BlockList::len).sum();
        let must = self.model.hold(owner, id, len, now);
        let taken = self.machine.hold(owner.clone(), id.clone(), blocks, end_token, now);
        same_taken(&taken, must, owner, id)?;
        self.compare(now)?;
        Ok(taken.is_ok())
    }

    pub fn abort(&mut self, id: &TransferId, now: Timestamp) -> Check {
        self.machine.abort(id, now);
        self.model.abort(id, now);
        self.compare(now)
    }

    pub fn release(&mut self, id: &TransferId, now: Timestamp) -> Check {
        self.machine.release(id, now);
        self.model.release(id, now);
        self.compare(now)
    }

    pub fn release_all(&mut self, now: Timestamp) -> Check {
        self.machine.release_all(now);
        self.model.release_all(now);
        self.compare(now)
    }

    pub fn refuse_open_pulls(&mut self, now: Timestamp) -> Check {
        self.machine.refuse_open_pulls(now);
        self.model.refuse_open_pulls(now);
        self.compare(now)
    }

    pub fn abort_transfers(&mut self, now: Timestamp) -> Check {
        self.machine.abort_transfers(now);
        self.model.abort_transfers(now);
        self.compare(now)
    }

    pub fn set_weights(&mut self, version: WeightVersion, now: Timestamp) -> Check {
        self.machine.set_weights(version, now);
        self.model.set_weights(version, now);
        self.compare(now)
    }

    pub fn pull(&mut self, pull: ResolvedPull<L>, now: Timestamp) -> Check {
        self.model.pull(&pull, pull.layout.foretell(), now);
        self.machine.pull(pull, now);
        self.compare(now)
    }

    /// A pull that cannot be resolved fails whole, at once `[P02, P12]`.
    pub fn refuse_pull(
        &mut self,
        pull: PullId,
        names: &[RequestId],
        why: FailureReason,
        extended: bool,
        now: Timestamp,
    ) -> Check {
        self.machine.refuse_pull(pull, names, why, "refused", extended);
        for name in names {
            self.model.due.push("P12", Effect::Failed(pull, name.clone(), why, true));
        }
        self.model.due.push("P02", Effect::Over(pull));
        self.compare(now)
    }

    pub fn drop_transfers(&mut self, drop: &DropTransfers, now: Timestamp) -> Check {
        self.machine.drop_transfers(drop, now);
        if drop.incarnation == Incarnation::default() || drop.incarnation == self.run {
            for (_, id, grant) in &drop.transfers {
                self.model.drop_one(id, *grant);
            }
            self.model.settle(now);
        }
        self.compare(now)
    }

    pub fn write_done(&mut self, write: SendWriteId, result: WriteResult, now: Timestamp) -> Check {
        let settled = match &result {
            WriteResult::Written => None,
            WriteResult::Failed { settled, .. } => Some(*settled),
        };
        self.machine.write_done(write, result, now);
        if let Some(at) = self.writing(write) {
            self.model.write_done(at, settled, now);
        }
        self.compare(now)
    }

    pub fn tick(&mut self, now: Timestamp) -> Check {
        self.machine.tick(now);
        self.model.tick(now);
        self.compare(now)
    }

    fn writing(&self, write: SendWriteId) -> Option<usize> {
        let stage = |stage| matches!(stage, Stage::Writing(Some(name), _) if name == write);
        self.model.asks.iter().position(|ask| stage(ask.stage))
    }

    /// Takes what the sender wants done.
    fn compare(&mut self, now: Timestamp) -> Check {
        while let Some(action) = self.machine.next_action() {
            match &action {
                SenderAction::Answer { pull, reply } => self.take_answer(*pull, reply)?,
                SenderAction::Write(start) => self.take_write(start, now)?,
                SenderAction::CancelWrite(write) => {
                    let at = self.writing(*write);
                    ensure!(at.is_some(), "P09", "cancels {write:?}, which does not run");
                    let ask = &self.model.asks[at.unwrap_or_default()];
                    let effect = Effect::Cancel(ask.transfer.clone(), ask.reader.clone());
                    self.model.due.happened(&effect)?;
                }
                SenderAction::Finished { request, transfer, ended } => {
                    let read = self.model.is_read(transfer);
                    ensure!(!read, "P01", "{transfer}'s blocks go back while a write reads them");
                    let effect = Effect::Finished(request.clone(), transfer.clone(), *ended);
                    self.model.due.happened(&effect)?;
                }
            }
            self.actions.push(action);
        }
        self.model.due.nothing_left()?;
        self.compare_counts()
    }

    fn take_answer(&mut self, pull: PullId, reply: &Reply) -> Check {
        let due = &mut self.model.due;
        for name in reply.ok.iter().flatten() {
            due.happened(&Effect::Ok(pull, name.clone()))?;
        }
        let failed = reply.failed.as_deref().unwrap_or_default();
        match &reply.extension {
            Some(extension) => {
                let named = extension.outcomes.iter().map(|(name, ..)| name);
                ensure!(named.eq(failed), "P02", "outcomes of other requests: {reply:?}");
                ensure!(extension.incarnation == self.run, "P12", "another run: {reply:?}");
                for (name, why, settled) in &extension.outcomes {
                    due.happened(&Effect::Failed(pull, name.clone(), *why, *settled))?;
                }
            }
            None => failed.iter().try_for_each(|name| due.failed_somehow(pull, name))?,
        }
        match reply.status {
            Status::Finish => due.happened(&Effect::Over(pull)),
            Status::Continue => {
                let open = self.model.pulls.iter().find(|it| it.id == pull);
                ensure!(open.is_some(), "P02", "pull {} goes on though nothing is open", pull.0);
                let echo = open.map(|it| it.echo);
                ensure!(echo == Some(reply.layout_id), "L03", "echoes {}", reply.layout_id);
                let news = reply.ok.is_some() || reply.failed.is_some();
                ensure!(news, "P02", "says nothing: {reply:?}");
                Ok(())
            }
            Status::Error | Status::LayoutMiss => {
                ensure!(false, "L06", "a sender says {:?}", reply.status);
                Ok(())
            }
        }
    }

    fn take_write(&mut self, start: &StartWrite<L>, now: Timestamp) -> Check {
        let (id, reader) = (&start.transfer, &start.reader);
        self.model.due.happened(&Effect::Write(id.clone(), reader.clone()))?;
        let found =
            self.model.asks.iter_mut().find(|it| it.transfer == *id && it.reader == *reader);
        let Some(ask) = found else { return Ok(()) };
        if let Stage::Writing(name, _) = &mut ask.stage {
            *name = Some(start.write);
        }
        let (pull, grant) = (ask.pull, ask.grant);
        ensure!(start.grant == grant, "G01", "writes under {:?}, not {grant:?}", start.grant);
        ensure!(!start.copies.is_empty(), "P03", "a write of nothing for {id}");
        let held = self.is_held(id);
        ensure!(held, "P01", "a write reads {id}, which is not held");
        self.check_time(pull, start, now)?;
        let running = self.model.running();
        let to_same = running.filter(|it| it.reader.session == reader.session).count();
        let most = &self.model.config;
        ensure!(self.machine.writes() <= most.senders.max(1), "P03", "more writes than slots");
        ensure!(to_same <= most.senders_per_peer.max(1), "Z03", "one peer takes {to_same} slots");
        Ok(())
    }

    /// No write starts after its pull's deadline, and none may last beyond it `[P04]`.
    fn check_time(&self, pull: PullId, start: &StartWrite<L>, now: Timestamp) -> Check {
        let Some(open) = self.model.pulls.iter().find(|it| it.id == pull) else {
            ensure!(false, "P02", "a write for pull {}, which is over", pull.0);
            return Ok(());
        };
        let most = self.model.config.write_timeout.min(open.deadline.since(now));
        let within = !start.timeout.is_zero() && start.timeout <= most;
        ensure!(within, "P04", "a write may last {:?} of {most:?}", start.timeout);
        ensure!(start.generation == open.generation, "S04", "another generation: {:?}", open.id);
        Ok(())
    }

    /// Bounds, and that nothing is kept beyond what the model knows `[Z01]`.
    fn compare_counts(&self) -> Check {
        let (machine, model) = (&self.machine, &self.model);
        let held = model.lives.iter().filter(|it| it.held.is_some()).count();
        let queued = model.asks.iter().filter(|it| matches!(it.stage, Stage::Queued(_))).count();
        let counts = [
            ("P01", "held", machine.held(), held),
            ("Z01", "transfers", machine.transfers(), model.lives.len()),
            ("P03", "writes", machine.writes(), model.running().count()),
            ("P02", "open pulls", machine.open_pulls(), model.pulls.len()),
            ("P03", "queued", machine.queued(), queued),
            ("P02", "waiting", machine.waiting(), model.asks.len()),
        ];
        for (rule, what, is, must) in counts {
            ensure!(is == must, rule, "{what}: {is}, must be {must}");
        }
        let blocks: u64 = model.lives.iter().filter_map(|it| it.held).sum();
        ensure!(machine.held_blocks() == blocks, "P01", "{} blocks", machine.held_blocks());
        let unread = model.lives.iter().filter(|it| it.held.is_some() && !model.is_read(&it.id));
        let (is, must) = (machine.in_use().count(), unread.count() + model.running().count());
        ensure!(is == must, "S01", "{is} uses of memory, must be {must}");
        let (is, must) = (machine.next_deadline(), model.next_deadline());
        ensure!(is == must, "P06", "next deadline {is:?}, must be {must:?}");
        let config = &model.config;
        ensure!(machine.transfers() <= config.max_transfers, "Z01", "too many transfers");
        ensure!(machine.waiting() <= config.max_waiting, "Z01", "too many wait");
        Ok(())
    }

    /// After everything ended nothing may be left.
    pub fn is_at_rest(&self) -> Check {
        let machine = &self.machine;
        let left = (machine.transfers(), machine.open_pulls(), machine.writes());
        ensure!(left == (0, 0, 0), "P06", "transfers, pulls, writes left: {left:?}");
        ensure!(machine.in_use().next().is_none(), "S01", "memory is still in use");
        ensure!(machine.next_deadline().is_none(), "P06", "a deadline is left");
        Ok(())
    }
}

fn same_taken(
    taken: &Result<(), SendError>,
    must: Taken,
    owner: &RequestId,
    id: &TransferId,
) -> Check {
    let is = match taken {
        Ok(()) => Taken::Yes,
        Err(SendError::TransferInUse { .. }) => Taken::InUse,
        Err(SendError::TooMany { .. }) => Taken::TooMany,
    };
    let rule = if must == Taken::TooMany { "Z01" } else { "P11" };
    ensure!(is == must, rule, "{owner} as {id}: {is:?}, must be {must:?}");
    Ok(())
}
