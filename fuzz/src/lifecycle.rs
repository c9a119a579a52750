//! One node's registration, its calls in any order, also those that come out of place.

use crate::campaign::{Campaign, Check, Trace};
use crate::choices::Choices;
use crate::ensure;
use kvbaton_core::ids::{Generation, LayoutId};
use kvbaton_core::lifecycle::{Lifecycle, LifecycleAction, LifecycleError, Names, State};
use kvbaton_core::time::Timestamp;
use std::time::Duration;

/// The campaign.
pub const CAMPAIGN: Campaign = Campaign {
    name: "lifecycle",
    about: "a node's registration: unregister, drain, release, restore in any order",
    bytes: 8..400,
    step_bytes: 4,
    run,
};

/// What the contract says of a registration, apart from how the machine keeps it.
#[derive(Debug, Default)]
struct Model {
    /// The registration that peers and writes may use.
    names: Option<Names>,
    /// What runs; one thing at a time `[S02]`.
    running: Option<Running>,
    /// Memory was registered once, so that it can be restored.
    known: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Running {
    Drain { until: Timestamp },
    Release,
    Restore,
}

struct World {
    node: Lifecycle,
    model: Model,
    now: Timestamp,
    minted: u64,
}

fn run(choices: &mut Choices<'_>, trace: &mut Trace) -> Check {
    let mut world =
        World { node: Lifecycle::default(), model: Model::default(), now: Timestamp(0), minted: 0 };
    while let Some([what, which, ..]) = choices.step() {
        world.apply(what % 16, which, trace)?;
        world.compare()?;
    }
    Ok(())
}

impl World {
    fn apply(&mut self, what: u8, which: u8, trace: &mut Trace) -> Check {
        self.now = self.now + Duration::from_millis(u64::from(which % 8) * 100);
        let now = self.now;
        match what {
            0 => self.register(trace),
            1..=3 => self.unregister(which, trace),
            4..=6 => {
                trace.step(|| "nothing touches memory".into());
                self.drained()
            }
            7 | 8 => {
                trace.step(|| format!("{now}: gives up, if due"));
                let due =
                    matches!(self.model.running, Some(Running::Drain { until }) if until <= now);
                let gave_up = self.node.give_up(now);
                ensure!(gave_up == due, "S01", "gave up at {now}: {gave_up}, due: {due}");
                if due {
                    self.model.running = None;
                }
                Ok(())
            }
            9..=11 => {
                trace.step(|| "the data plane has unregistered".into());
                self.node.released();
                if self.model.running == Some(Running::Release) {
                    (self.model.running, self.model.names) = (None, None);
                }
                Ok(())
            }
            12 | 13 => self.restore(trace),
            14 => {
                trace.step(|| "the data plane could not register again".into());
                self.node.restore_failed();
                if self.model.running == Some(Running::Restore) {
                    self.model.running = None;
                }
                Ok(())
            }
            _ if self.model.running == Some(Running::Restore) => {
                self.registered(trace);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Memory is registered once at a time.
    fn register(&mut self, trace: &mut Trace) -> Check {
        trace.step(|| "registers, if it may".into());
        let may = self.node.may_register();
        let must = match (self.model.running, self.model.names) {
            (Some(_), _) => "busy",
            (None, Some(_)) => "registered",
            (None, None) => "ok",
        };
        let is = match may {
            Ok(()) => "ok",
            Err(LifecycleError::AlreadyRegistered) => "registered",
            Err(LifecycleError::Busy(_)) => "busy",
            Err(LifecycleError::NeverRegistered) => "never registered",
        };
        ensure!(is == must, "S02", "whether it may register: {is}, must be {must}");
        if may.is_ok() {
            self.registered(trace);
        }
        Ok(())
    }

    fn registered(&mut self, trace: &mut Trace) {
        self.minted += 1;
        let names = Names {
            generation: Generation(self.minted),
            layout_id: LayoutId::from_random(self.minted * 2),
        };
        trace.step(|| format!("the data plane has registered generation {}", self.minted));
        self.node.registered(names);
        self.model = Model { names: Some(names), running: None, known: true };
    }

    fn unregister(&mut self, which: u8, trace: &mut Trace) -> Check {
        let drain = Duration::from_millis(u64::from(which / 8) * 50);
        trace.step(|| format!("unregister within {drain:?}"));
        let asked = self.node.unregister(drain, self.now);
        match (self.model.running, self.model.names) {
            (Some(_), _) => {
                let busy = matches!(asked, Err(LifecycleError::Busy(_)));
                ensure!(busy, "S02", "unregisters beside another operation: {asked:?}");
            }
            (None, Some(_)) => {
                let waits = asked == Ok(LifecycleAction::WatchDrain);
                ensure!(waits, "S05", "unregisters without a drain: {asked:?}");
                self.model.running = Some(Running::Drain { until: self.now + drain });
            }
            (None, None) => {
                ensure!(asked == Ok(LifecycleAction::Done), "S02", "not idempotent: {asked:?}");
            }
        }
        Ok(())
    }

    fn drained(&mut self) -> Check {
        let next = self.node.drained();
        let names = self.model.names;
        let must = match self.model.running {
            Some(Running::Drain { .. }) => names.map(|it| LifecycleAction::Release(it.generation)),
            _ => None,
        };
        ensure!(next == must, "S05", "after the drain: {next:?}, must be {must:?}");
        if must.is_some() {
            self.model.running = Some(Running::Release);
        }
        Ok(())
    }

    fn restore(&mut self, trace: &mut Trace) -> Check {
        trace.step(|| "restore".into());
        let asked = self.node.restore();
        match (self.model.running, self.model.names) {
            (Some(_), _) => {
                let busy = matches!(asked, Err(LifecycleError::Busy(_)));
                ensure!(busy, "S02", "restores beside another operation: {asked:?}");
            }
            (None, Some(_)) => {
                ensure!(asked == Ok(LifecycleAction::Done), "S02", "not idempotent: {asked:?}");
            }
            (None, None) if self.model.known => {
                let restores = asked == Ok(LifecycleAction::Restore);
                ensure!(restores, "S02", "cannot be restored: {asked:?}");
                self.model.running = Some(Running::Restore);
            }
            (None, None) => {
                let never = asked == Err(LifecycleError::NeverRegistered);
                ensure!(never, "S02", "restores what never was: {asked:?}");
            }
        }
        Ok(())
    }

    fn compare(&self) -> Check {
        let (is, must) = (self.node.names(), self.model.names);
        ensure!(is == must, "S01", "registered as {is:?}, must be {must:?}");
        let until = match self.model.running {
            Some(Running::Drain { until }) => Some(until),
            _ => None,
        };
        let next = self.node.next_deadline();
        ensure!(next == until, "S01", "gives up at {next:?}, must at {until:?}");
        let runs = match self.node.state() {
            State::New | State::Registered(_) | State::Unregistered => None,
            State::Draining { until, .. } => Some(Running::Drain { until }),
            State::Releasing(_) => Some(Running::Release),
            State::Restoring => Some(Running::Restore),
        };
        ensure!(runs == self.model.running, "S05", "{runs:?}, must be {:?}", self.model.running);
        Ok(())
    }
}
