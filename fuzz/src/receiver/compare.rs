//! Whether what a receiver does is what its book asks for.

use super::book::{OpenPull, Rank, RankState};
use super::watched::WatchedReceiver;
use crate::campaign::Check;
use crate::ensure;
use kvbaton_core::ids::{Grant, RequestId, TransferId};
use kvbaton_core::receiver::{Form, LoadEnd, LoadFailureReason, ReceiverAction};
use kvbaton_core::sender::PullId;
use kvbaton_core::time::Timestamp;
use kvbaton_core::wire::Pull;
use std::sync::Arc;
use std::time::Duration;

impl WatchedReceiver {
    /// Takes what the receiver wants done.
    pub(super) fn compare(&mut self, now: Timestamp) -> Check {
        while let Some(action) = self.machine.next_action() {
            match &action {
                ReceiverAction::Discover { bootstrap } => {
                    let asked = self.book.asking.contains(bootstrap);
                    ensure!(!asked, "Z01", "{bootstrap} is asked while it is being asked");
                    self.book.asking.push(bootstrap.clone());
                }
                ReceiverAction::OpenGrant { grant, generation, blocks, allow_ungranted } => {
                    let current = self.book.registered.map(|(_, generation)| generation);
                    ensure!(current == Some(*generation), "S04", "opens rows of {generation}");
                    let load = self.book.loads.iter().find(|it| it.grant == *grant);
                    ensure!(load.is_some_and(|it| it.blocks == *blocks), "G01", "other rows");
                    self.take_open(*grant, *allow_ungranted, now)?;
                }
                ReceiverAction::Pull { id, address, form, pull } => {
                    self.take_pull(*id, address, *form, pull, now)?;
                }
                ReceiverAction::ClosePull(id) => {
                    let waits = self.is_waited_for(*id);
                    ensure!(!waits, "P02", "pull {} is closed while it is waited for", id.0);
                    self.book.pulls.retain(|it| it.id != *id);
                }
                ReceiverAction::Drop { address, drop } => {
                    for (_, transfer, grant) in &drop.transfers {
                        let due = (address.clone(), drop.incarnation, *grant);
                        let at = self.book.drops.iter().position(|it| *it == due);
                        ensure!(at.is_some(), "P09", "drops {transfer} at {address} for nothing");
                        self.book.drops.swap_remove(at.unwrap_or_default());
                    }
                }
                ReceiverAction::Revoke(grant) => self.take_revoke(*grant, now)?,
                ReceiverAction::Ended { request, transfer, end } => {
                    self.take_end(request, transfer, end)?;
                }
            }
            self.actions.push(action);
        }
        self.check_due(now)
    }

    /// Whether a load that goes on waits for the pull; releases are given up in silence.
    fn is_waited_for(&self, pull: PullId) -> bool {
        let open = self.book.pulls.iter().filter(|it| it.id == pull).flat_map(|it| &it.open);
        let grants: Vec<Grant> = open.filter_map(|(_, grant)| *grant).collect();
        let mut loads = self.book.loads.iter().filter(|it| grants.contains(&it.grant));
        loads.any(|it| !it.revoking && !it.is_over())
    }

    fn take_open(&mut self, grant: Grant, ungranted: bool, now: Timestamp) -> Check {
        let Some(at) = self.book.loads.iter().position(|it| it.grant == grant) else {
            ensure!(false, "G01", "opens rows for no load");
            return Ok(());
        };
        let load = &self.book.loads[at];
        ensure!(!load.revoking, "G02", "{} is opened while it is revoked", load.request);
        let again = load.opened.is_none() || ungranted;
        ensure!(again, "G01", "{} is opened twice", load.request);
        if ungranted {
            let until = self.book.closed_until(&load.blocks, now);
            ensure!(until.is_none(), "G03", "{} is open too early: {until:?}", load.request);
        }
        if load.opened.is_none() {
            self.book.fresh.push(grant);
        }
        self.book.loads[at].opened = Some(ungranted);
        Ok(())
    }

    fn take_pull(
        &mut self,
        id: PullId,
        address: &Arc<str>,
        form: Form,
        pull: &Pull,
        now: Timestamp,
    ) -> Check {
        let current = self.book.registered.map(|(layout, _)| layout);
        ensure!(Some(pull.layout_id) == current, "L09", "pulls for layout {}", pull.layout_id);
        ensure!(!pull.requests.is_empty(), "P02", "an empty pull");
        ensure!(pull.extension.is_some() == (form == Form::Compact), "P09", "form {form:?}");
        let mut open: Vec<(RequestId, Option<Grant>)> = Vec::new();
        for request in &pull.requests {
            let name = &request.request_id;
            let twice = open.iter().any(|(known, _)| known == name);
            ensure!(!twice, "P11", "pull {} names {name} twice", id.0);
            let grant = if request.groups.is_empty() {
                ensure!(request.grant.is_none(), "P10", "a release under a grant");
                None
            } else {
                Some(self.check_wanted(name, form, request.grant)?)
            };
            open.push((name.clone(), grant));
        }
        self.check_extension(pull, &open, now)?;
        let repeat = self.book.repeat.take_if(|it| {
            it.address == *address && open.iter().all(|request| it.open.contains(request))
        });
        let echoed = self.book.echoed.contains(address);
        let unsure = self.book.unsure.contains(address);
        match (&pull.layout, &repeat) {
            (None, None) => {
                ensure!(echoed || unsure, "L04", "no layout for {address}, which never echoed")
            }
            (None, Some(_)) => ensure!(false, "L05", "the repetition leaves out the layout"),
            (Some(_), None) if self.config.max_peers > 1 => {
                ensure!(!echoed || unsure, "L04", "the layout goes to {address} again");
            }
            (Some(_), _) => {}
        }
        let repeats = repeat.as_ref().map_or(0, |it| it.repeats);
        if let Some(repeat) = repeat {
            let must = &repeat.open;
            let less = must.iter().any(|it| it.1.is_some() && !open.contains(it));
            ensure!(!less, "L05", "repeats {open:?}, must repeat {must:?}");
            ensure!(form == repeat.form, "L05", "repeats as {form:?}");
        }
        let ours = pull.extension.as_ref().map(|it| it.incarnation);
        for grant in open.iter().filter_map(|(_, grant)| *grant) {
            let Some(load) = self.book.by_grant(grant) else { continue };
            load.ranks.retain(|it| it.address != *address);
            let (address, state) = (address.clone(), RankState::Waiting);
            load.ranks.push(Rank { address, pull: id, ours, state });
        }
        let (address, with_layout) = (address.clone(), pull.layout.is_some());
        let writes_until = now + self.config.load_timeout;
        let open = OpenPull { id, address, form, with_layout, repeats, open, writes_until };
        self.book.pulls.push(open);
        Ok(())
    }

    /// KV is pulled for a load whose rows are open, under its grant `[G01]`.
    fn check_wanted(&mut self, name: &RequestId, form: Form, grant: Option<Grant>) -> Check<Grant> {
        let Some(load) = self.book.by_request(name) else {
            ensure!(false, "P11", "pulls KV for {name}, which does not load");
            return Ok(Grant(0));
        };
        ensure!(load.opened.is_some() && !load.revoking, "G01", "{name}'s rows are not open");
        let right = grant == (form == Form::Compact).then_some(load.grant);
        ensure!(right, "G01", "{name} is pulled under {grant:?}");
        let may = form == Form::Compact || load.opened == Some(true);
        ensure!(may, "G03", "{name}'s rows are closed to the stock P that is to write them");
        Ok(load.grant)
    }

    /// P is told how long D waits at most `[P04]`, and what it writes into `[S04]`.
    fn check_extension(
        &self,
        pull: &Pull,
        open: &[(RequestId, Option<Grant>)],
        now: Timestamp,
    ) -> Check {
        let Some(extension) = &pull.extension else { return Ok(()) };
        let current = self.book.registered.map(|(_, generation)| generation);
        ensure!(current == Some(extension.generation), "S04", "an old generation");
        let (is, must) = (extension.weights, self.book.weights);
        ensure!(is == must, "R07", "says weights {is}, runs {must}");
        let loads = self.book.loads.iter();
        let named = loads.filter(|it| open.iter().any(|(_, grant)| *grant == Some(it.grant)));
        let left = named.map(|it| it.deadline.since(now)).min();
        let most = left.unwrap_or(self.config.load_timeout).max(Duration::from_millis(1));
        let within = !extension.timeout.is_zero() && extension.timeout <= most;
        ensure!(within, "P04", "says that it waits {:?}, not {most:?}", extension.timeout);
        Ok(())
    }

    fn take_revoke(&mut self, grant: Grant, now: Timestamp) -> Check {
        let Some(load) = self.book.by_grant(grant) else {
            ensure!(false, "G02", "revokes the grant of no load");
            return Ok(());
        };
        ensure!(load.opened.is_some(), "G02", "revokes what {} never opened", load.request);
        ensure!(!load.revoking, "G02", "{} is revoked twice", load.request);
        let may = load.at_once || !load.waits();
        ensure!(may, "P08", "{} ends before {:?}", load.request, load.ranks);
        self.book.leave(grant, now, self.config.stock_quarantine);
        Ok(())
    }

    fn take_end(&mut self, request: &RequestId, transfer: &TransferId, end: &LoadEnd) -> Check {
        let Some(at) = self.book.loads.iter().position(|it| it.request == *request) else {
            ensure!(false, "P08", "{request} ends twice, or never loaded: {end:?}");
            return Ok(());
        };
        let load = self.book.loads.remove(at);
        ensure!(load.transfer == *transfer, "P11", "{request} ends as {transfer}");
        let safe = load.opened.is_none() || load.revoked;
        ensure!(safe, "G02", "{request} ends under an open grant");
        let has_blocks = load.blocks.iter().any(|group| !group.is_empty());
        match end {
            LoadEnd::Dropped => ensure!(load.dropped, "P09", "{request} was never dropped"),
            _ if load.dropped => ensure!(false, "P09", "dropped {request} ends as {end:?}"),
            LoadEnd::Loaded => {
                ensure!(load.cause.is_none(), "P08", "{request} is loaded after {:?}", load.cause);
                let all = load.ranks.iter().all(|it| it.state == RankState::Ok);
                let pulled = !load.ranks.is_empty() || !has_blocks;
                ensure!(all && pulled, "P08", "{request} is loaded from {:?}", load.ranks);
            }
            LoadEnd::Failed(failure) => {
                let may = match load.cause {
                    Some(cause) => failure.reason == cause,
                    // The bootstrap server's answer, or what it listed.
                    None if load.opened.is_some() => false,
                    None => match failure.reason {
                        LoadFailureReason::UnknownEngine => self.discovering,
                        LoadFailureReason::Incompatible => true,
                        _ => false,
                    },
                };
                ensure!(may, "P08", "{request} fails as {failure:?}, first was {:?}", load.cause);
            }
        }
        Ok(())
    }

    /// What must have happened by the end of an input.
    fn check_due(&mut self, now: Timestamp) -> Check {
        if let Some(repeat) = self.book.repeat.take() {
            let waited_for = repeat.open.iter().any(|(_, grant)| grant.is_some());
            ensure!(
                !waited_for,
                "L05",
                "{:?} must be pulled again from {}",
                repeat.open,
                repeat.address
            );
        }
        let drop = self.book.drops.first();
        ensure!(drop.is_none(), "P09", "a P rank is not told of a drop: {drop:?}");
        for load in &self.book.loads {
            let name = &load.request;
            ensure!(!load.revoked, "P08", "{name} was revoked and did not end");
            if load.opened.is_none() {
                let over = load.is_over() || load.at_once;
                ensure!(!over, "P08", "{name} is over and did not end: {:?}", load.cause);
            } else if !load.revoking {
                let over = load.is_over() && load.at_once;
                ensure!(!over, "G02", "{name} is over and its grant is still open");
                ensure!(load.waits(), "P08", "nobody is waited for and {name} does not end");
            }
            if !load.revoking {
                let next = self.machine.next_deadline();
                let bounded = next.is_some_and(|next| next <= load.deadline.max(now));
                ensure!(bounded, "P04", "nothing ends {name} at its deadline");
            }
        }
        for grant in std::mem::take(&mut self.book.fresh) {
            self.check_targets(grant)?;
        }
        let (is, must) = (self.machine.in_use().count(), self.book.loads.len());
        ensure!(is == must, "S01", "{is} loads use memory, must be {must}");
        let (is, must) = (self.machine.open_pulls(), self.book.pulls.len());
        ensure!(is == must, "P02", "open pulls: {is}, must be {must}");
        let (loads, most) = (self.machine.loads(), self.config.max_loads);
        ensure!(loads <= most, "Z01", "{loads} loads of {most}");
        ensure!(loads >= self.book.loads.len(), "P08", "a load is lost");
        self.book.closed.retain(|it| it.until > now);
        Ok(())
    }

    /// Every rank that holds a part is pulled from `[A02]`.
    fn check_targets(&mut self, grant: Grant) -> Check {
        let Some(load) = self.book.loads.iter().find(|it| it.grant == grant) else { return Ok(()) };
        let mut pulled: Vec<_> = load.ranks.iter().map(|it| it.address.clone()).collect();
        pulled.sort();
        let learned = self.book.learned.iter().find(|(engine, _)| *engine == load.engine);
        let all = learned.map(|(_, addresses)| addresses);
        let every = !self.all_ranks || all == Some(&pulled);
        ensure!(every, "A02", "{} is pulled from {pulled:?} of {all:?}", load.request);
        Ok(())
    }

    /// After everything ended nothing may be left.
    pub fn is_at_rest(&self) -> Check {
        let machine = &self.machine;
        let left = (machine.loads(), machine.open_pulls());
        ensure!(left == (0, 0), "P08", "loads and pulls left: {left:?}");
        ensure!(machine.next_deadline().is_none(), "P08", "a deadline is left");
        ensure!(self.book.loads.is_empty(), "P08", "loads that never ended");
        Ok(())
    }
}
