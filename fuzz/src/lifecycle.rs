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
    about: "a node's registration: unregister, two-phase release, restore in any order",
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
    Drain { until: Timestamp, prepare: Option<Duration> },
    Prepared { until: Timestamp },
    Release,
    Restore,
}

impl Model {
    /// When what runs gives up by itself.
    fn until(&self) -> Option<Timestamp> {
        match self.running {
            Some(Running::Drain { until, .. } | Running::Prepared { until }) => Some(until),
            _ => None,
        }
    }
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
        world.apply(what % 24, which, trace)?;
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
                let due = self.model.until().is_some_and(|until| until <= now);
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
            15 if self.model.running == Some(Running::Restore) => {
                self.registered(trace);
                Ok(())
            }
            16..=18 => self.prepare(which, trace),
            19..=21 => self.commit(trace),
            22 => self.cancel(trace),
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
            Err(LifecycleError::NotPrepared) => "not prepared",
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
                let until = self.now + drain;
                self.model.running = Some(Running::Drain { until, prepare: None });
            }
            (None, None) => {
                ensure!(asked == Ok(LifecycleAction::Done), "S02", "not idempotent: {asked:?}");
            }
        }
        Ok(())
    }

    fn prepare(&mut self, which: u8, trace: &mut Trace) -> Check {
        let drain = Duration::from_millis(u64::from(which / 8) * 50);
        let lease = Duration::from_millis(u64::from(which % 8) * 200);
        trace.step(|| format!("prepare within {drain:?}, for {lease:?}"));
        let asked = self.node.prepare(drain, lease, self.now);
        match (self.model.running, self.model.names) {
            (Some(Running::Prepared { .. }), _) => {
                ensure!(asked == Ok(LifecycleAction::Wait), "S06", "not idempotent: {asked:?}");
                self.model.running = Some(Running::Prepared { until: self.now + lease });
            }
            (Some(_), _) => {
                let busy = matches!(asked, Err(LifecycleError::Busy(_)));
                ensure!(busy, "S02", "prepares beside another operation: {asked:?}");
            }
            (None, Some(_)) => {
                let waits = asked == Ok(LifecycleAction::WatchDrain);
                ensure!(waits, "S05", "prepares without a drain: {asked:?}");
                let until = self.now + drain;
                self.model.running = Some(Running::Drain { until, prepare: Some(lease) });
            }
            (None, None) if !self.model.known => {
                let never = asked == Err(LifecycleError::NeverRegistered);
                ensure!(never, "S06", "prepares what never was: {asked:?}");
            }
            (None, None) => {
                ensure!(asked == Ok(LifecycleAction::Done), "S02", "not idempotent: {asked:?}");
            }
        }
        Ok(())
    }

    fn commit(&mut self, trace: &mut Trace) -> Check {
        trace.step(|| "commit".into());
        let asked = self.node.commit();
        match (self.model.running, self.model.names) {
            (Some(Running::Prepared { .. }), Some(names)) => {
                let releases = asked == Ok(LifecycleAction::Release(names.generation));
                ensure!(releases, "S06", "prepared, but not released: {asked:?}");
                self.model.running = Some(Running::Release);
            }
            (Some(_), _) => {
                let busy = matches!(asked, Err(LifecycleError::Busy(_)));
                ensure!(busy, "S06", "commits beside another operation: {asked:?}");
            }
            (None, Some(_)) => {
                let refused = asked == Err(LifecycleError::NotPrepared);
                ensure!(refused, "S06", "commits what is not prepared: {asked:?}");
            }
            (None, None) => {
                ensure!(asked == Ok(LifecycleAction::Done), "S02", "not idempotent: {asked:?}");
            }
        }
        Ok(())
    }

    fn cancel(&mut self, trace: &mut Trace) -> Check {
        trace.step(|| "cancel".into());
        let cancelled = self.node.cancel();
        let may = self.model.until().is_some();
        ensure!(cancelled == may, "S06", "cancelled: {cancelled}, must be {may}");
        if may {
            self.model.running = None;
        }
        Ok(())
    }

    fn drained(&mut self) -> Check {
        let next = self.node.drained(self.now);
        let (must, running) = match (self.model.running, self.model.names) {
            (Some(Running::Drain { prepare: None, .. }), Some(names)) => {
                (Some(LifecycleAction::Release(names.generation)), Some(Running::Release))
            }
            (Some(Running::Drain { prepare: Some(lease), .. }), Some(_)) => {
                let until = self.now + lease;
                (Some(LifecycleAction::Wait), Some(Running::Prepared { until }))
            }
            (running, _) => (None, running),
        };
        ensure!(next == must, "S05", "after the drain: {next:?}, must be {must:?}");
        self.model.running = running;
        Ok(())
    }

    fn restore(&mut self, trace: &mut Trace) -> Check {
        trace.step(|| "restore".into());
        let asked = self.node.restore();
        match (self.model.running, self.model.names) {
            (Some(Running::Prepared { .. }), _) => {
                let goes_on = asked == Ok(LifecycleAction::GoOn);
                ensure!(goes_on, "S06", "prepared, and cannot be restored: {asked:?}");
                self.model.running = None;
            }
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
        let until = self.model.until();
        let next = self.node.next_deadline();
        ensure!(next == until, "S01", "gives up at {next:?}, must at {until:?}");
        let runs = match self.node.state() {
            State::New | State::Registered(_) | State::Unregistered => None,
            State::Draining { until, prepare, .. } => Some(Running::Drain { until, prepare }),
            State::Prepared { until, .. } => Some(Running::Prepared { until }),
            State::Releasing(_) => Some(Running::Release),
            State::Restoring => Some(Running::Restore),
        };
        ensure!(runs == self.model.running, "S05", "{runs:?}, must be {:?}", self.model.running);
        Ok(())
    }
}
