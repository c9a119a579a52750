//! The registration's actor: owns core's [`Lifecycle`]; registers, drains, unregisters
//! and restores across the other actors `[S01, S02, S05]`.

use crate::alarm::Alarm;
use crate::clock::Clock;
use crate::decode_receiver::{DecodeReceiver, Enter, Leave};
use crate::discovery::{Announce, Discovery};
use crate::layout_cache::{LayoutCache, SetLocal};
use crate::node::registration::{Memory, names};
use crate::prefill_sender::{Freeze, PrefillSender, Thaw};
use crate::runtime;
use crate::transport::{DataPlane, Registration, TransportError};
use actix::prelude::*;
use kvbaton_core::ids::Generation;
use kvbaton_core::lifecycle::{Lifecycle, LifecycleAction, LifecycleError, State};
use kvbaton_core::planted::{self, Bug};
use kvbaton_core::receiver::Registered;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// How often a drain looks whether memory is still in use.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The actor.
pub struct LifecycleManager {
    machine: Lifecycle,
    clock: Clock,
    data: Arc<dyn DataPlane>,
    sender: Addr<PrefillSender>,
    receiver: Addr<DecodeReceiver>,
    layouts: Addr<LayoutCache>,
    discovery: Addr<Discovery>,
    announce: Option<Announce>,
    memory: Option<Arc<Memory>>,
    registration: Option<Registration>,
    /// The drain that counts: an older one changes nothing any more.
    drain: Rc<Cell<u64>>,
    alarm: Alarm,
}

/// Whom the manager tells.
pub struct Others {
    /// P's side.
    pub sender: Addr<PrefillSender>,
    /// D's side.
    pub receiver: Addr<DecodeReceiver>,
    /// P's layouts.
    pub layouts: Addr<LayoutCache>,
    /// The bootstrap server's actor.
    pub discovery: Addr<Discovery>,
}

impl LifecycleManager {
    /// An actor that announces the rank, if it is a prefill's, once memory is registered.
    pub fn new(
        clock: Clock,
        data: Arc<dyn DataPlane>,
        others: Others,
        announce: Option<Announce>,
    ) -> Self {
        Self {
            machine: Lifecycle::default(),
            clock,
            data,
            sender: others.sender,
            receiver: others.receiver,
            layouts: others.layouts,
            discovery: others.discovery,
            announce,
            memory: None,
            registration: None,
            drain: Rc::default(),
            alarm: Alarm::default(),
        }
    }

    fn register_memory(&self, memory: &Memory) -> Result<Registration, TransportError> {
        // SAFETY: whoever registered the memory promised that it stays mapped and may
        // change until it is unregistered (`Node::register`).
        unsafe { self.data.register(&memory.local.memory) }
    }

    /// Tells everyone of a registration.
    fn enter(&mut self, registration: &Registration, memory: Arc<Memory>) {
        let names = names(registration.generation, &memory);
        let columns = memory.columns(registration);
        self.receiver.do_send(Enter {
            registered: Registered {
                layout_id: names.layout_id,
                generation: names.generation,
                columns: Arc::new(columns),
                session: self.data.session(),
            },
            rows: memory.rows.clone(),
        });
        self.layouts.do_send(SetLocal(Some(memory.clone())));
        self.sender.do_send(Thaw);
        self.machine.registered(names);
        self.memory = Some(memory);
        self.registration = Some(registration.clone());
    }

    /// The registration stands after all, so the node goes on under it `[S01, S06]`.
    fn stay(&mut self) {
        if let (Some(registration), Some(memory)) = (self.registration.clone(), self.memory.clone())
        {
            self.enter(&registration, memory);
        }
    }
}

impl Actor for LifecycleManager {
    type Context = Context<Self>;
}

/// Why memory could not be registered, unregistered or restored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationError {
    /// Not possible in this state.
    #[error(transparent)]
    State(#[from] LifecycleError),
    /// The transport refused.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// Memory was still in use at the end of the drain `[S01]`; the node stays registered.
    #[error(
        "memory is still in use after {waited:?}: {}; \
         the node stays registered: release or drop these, or drain longer",
        .users.join("; ")
    )]
    InUse {
        /// How long it was waited.
        waited: Duration,
        /// What uses it.
        users: Vec<String>,
    },
    /// Another call took it back before it was done.
    #[error("the release was cancelled before it was done; the node stays registered")]
    Cancelled,
    /// The transport cannot register again `[S03]`.
    #[error("this transport cannot register memory again, so it cannot sleep; use one that can")]
    CannotReregister,
}

/// Registers memory for the first time, or other memory after an unregister.
#[derive(Message)]
#[rtype(result = "Result<(), RegistrationError>")]
pub struct Register(
    /// The memory.
    pub Arc<Memory>,
);

impl Handler<Register> for LifecycleManager {
    type Result = ResponseActFuture<Self, Result<(), RegistrationError>>;
    fn handle(&mut self, Register(memory): Register, _: &mut Self::Context) -> Self::Result {
        let registered = self.machine.may_register().map_err(RegistrationError::from);
        let registered = registered.and_then(|()| Ok(self.register_memory(&memory)?));
        match registered {
            Err(error) => Box::pin(actix::fut::ready(Err(error))),
            Ok(registration) => {
                self.enter(&registration, memory);
                let Some(announce) = self.announce.clone() else {
                    return Box::pin(actix::fut::ready(Ok(())));
                };
                let announced = self.discovery.send(announce);
                let told = async move { announced.await.unwrap_or(Ok(())) };
                Box::pin(actix::fut::wrap_future::<_, Self>(told).map(|told, _, _| Ok(told?)))
            }
        }
    }
}

/// Ends the registration once nothing uses memory, within a bound `[S01]`.
#[derive(Message)]
#[rtype(result = "Result<(), RegistrationError>")]
pub struct Unregister(
    /// How long to wait.
    pub Duration,
);

/// First phase of a release `[S06]`: as [`Unregister`], but memory stays registered, unused,
/// until [`Commit`] or [`Cancel`], or until the lease ends.
#[derive(Message)]
#[rtype(result = "Result<(), RegistrationError>")]
pub struct Prepare {
    /// How long to wait until nothing uses memory.
    pub drain: Duration,
    /// After how long the node is usable again by itself.
    pub lease: Duration,
}

/// Second phase of a release `[S06]`.
#[derive(Message)]
#[rtype(result = "Result<(), RegistrationError>")]
pub struct Commit;

/// Takes a drain or the first phase of a release back.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Cancel;

type Ends = ResponseActFuture<LifecycleManager, Result<(), RegistrationError>>;

fn ready(result: Result<(), RegistrationError>) -> Ends {
    Box::pin(actix::fut::ready(result))
}

impl Handler<Unregister> for LifecycleManager {
    type Result = Ends;
    fn handle(&mut self, Unregister(bound): Unregister, _: &mut Self::Context) -> Self::Result {
        let asked = self.machine.unregister(bound, self.clock.now());
        self.begin_release(asked, bound)
    }
}

impl Handler<Prepare> for LifecycleManager {
    type Result = Ends;
    fn handle(&mut self, Prepare { drain, lease }: Prepare, _: &mut Self::Context) -> Self::Result {
        let asked = self.machine.prepare(drain, lease, self.clock.now());
        self.begin_release(asked, drain)
    }
}

impl Handler<Commit> for LifecycleManager {
    type Result = Ends;
    fn handle(&mut self, _: Commit, context: &mut Self::Context) -> Self::Result {
        let asked = self.machine.commit();
        self.arm(context);
        match asked {
            Ok(LifecycleAction::Release(generation)) => self.release(generation),
            Ok(_) => ready(Ok(())),
            Err(error) => ready(Err(error.into())),
        }
    }
}

impl Handler<Cancel> for LifecycleManager {
    type Result = ();
    fn handle(&mut self, _: Cancel, context: &mut Self::Context) {
        self.drain.set(self.drain.get() + 1);
        if self.machine.cancel() {
            self.stay();
        }
        self.arm(context);
    }
}

impl LifecycleManager {
    fn begin_release(
        &mut self,
        asked: Result<LifecycleAction, LifecycleError>,
        bound: Duration,
    ) -> Ends {
        if !self.data.capabilities().reregister {
            self.machine.cancel();
            return ready(Err(RegistrationError::CannotReregister));
        }
        match asked {
            Err(error) => ready(Err(error.into())),
            Ok(LifecycleAction::WatchDrain) => {
                let number = self.drain.get() + 1;
                self.drain.set(number);
                let counts = (self.drain.clone(), number);
                let drained = drain(self.sender.clone(), self.receiver.clone(), bound, counts);
                let drained = actix::fut::wrap_future::<_, Self>(drained);
                Box::pin(drained.then(move |users, this, context: &mut Context<Self>| {
                    let ends = this.drained(number, users, bound);
                    this.arm(context);
                    ends
                }))
            }
            Ok(_) => ready(Ok(())),
        }
    }

    fn drained(&mut self, number: u64, users: Vec<String>, waited: Duration) -> Ends {
        if number != self.drain.get() {
            // Cancelled. What it may have frozen since is in use again, unless a later
            // drain is at it.
            if let State::Registered(_) = self.machine.state() {
                self.stay();
            }
            return ready(Err(RegistrationError::Cancelled));
        }
        let next = if users.is_empty() { self.machine.drained(self.clock.now()) } else { None };
        match next {
            Some(LifecycleAction::Release(generation)) => self.release(generation),
            Some(_) => ready(Ok(())),
            None => {
                self.machine.cancel();
                ready(Err(RegistrationError::InUse { waited, users }))
            }
        }
    }

    /// Nothing uses memory any more: unregisters it.
    fn release(&mut self, generation: Generation) -> Ends {
        self.layouts.do_send(SetLocal(None));
        let unregistered = self.data.unregister(generation);
        let unregistered = actix::fut::wrap_future::<_, Self>(unregistered);
        let ended = unregistered.map(|ended, this: &mut Self, _: &mut Context<Self>| match ended {
            Ok(()) => {
                this.machine.released();
                Ok(())
            }
            Err(error) => {
                this.stay();
                Err(error.into())
            }
        });
        Box::pin(ended)
    }

    /// Rings when a prepared release ends by itself: whoever asked for it is gone.
    fn arm(&mut self, context: &mut Context<Self>) {
        let now = self.clock.now();
        let due = match self.machine.state() {
            State::Prepared { until, .. } => Some(until),
            _ => None,
        };
        self.alarm.set(due, now, context, |this, context| {
            this.alarm.rang();
            if this.machine.give_up(this.clock.now()) {
                tracing::warn!("nobody committed the prepared release; memory is in use again");
                this.stay();
            }
            this.arm(context);
        });
    }
}

/// Waits until neither side uses memory, and keeps it so; returns what still does at the end
/// of the bound. Ends early once another drain counts.
async fn drain(
    sender: Addr<PrefillSender>,
    receiver: Addr<DecodeReceiver>,
    bound: Duration,
    (counting, number): (Rc<Cell<u64>>, u64),
) -> Vec<String> {
    let mut waited = Duration::ZERO;
    loop {
        if counting.get() != number {
            return Vec::new();
        }
        let mut users = Vec::new();
        match sender.send(Freeze).await {
            Ok(Ok(())) => match receiver.send(Leave).await {
                Ok(Ok(())) => return users,
                Ok(Err(loading)) => {
                    users = loading;
                    if !planted::is(Bug::FreezeNotThawed) {
                        sender.do_send(Thaw);
                    }
                }
                Err(gone) => users.push(gone.to_string()),
            },
            Ok(Err(sending)) => users = sending,
            Err(gone) => users.push(gone.to_string()),
        }
        if planted::is(Bug::UnregisterWithoutDrain) {
            return Vec::new();
        }
        if waited >= bound {
            return users;
        }
        runtime::sleep(LOOK_AGAIN).await;
        waited += LOOK_AGAIN;
    }
}

/// Registers the same memory again `[S02]`.
#[derive(Message)]
#[rtype(result = "Result<(), RegistrationError>")]
pub struct Restore;

impl Handler<Restore> for LifecycleManager {
    type Result = Result<(), RegistrationError>;
    fn handle(&mut self, _: Restore, _: &mut Self::Context) -> Self::Result {
        match self.machine.restore()? {
            LifecycleAction::Restore => {}
            LifecycleAction::GoOn => {
                self.stay();
                return Ok(());
            }
            _ => return Ok(()),
        }
        let Some(memory) = self.memory.clone() else {
            self.machine.restore_failed();
            return Err(LifecycleError::NeverRegistered.into());
        };
        match self.register_memory(&memory) {
            Ok(registration) => {
                self.enter(&registration, memory);
                Ok(())
            }
            Err(error) => {
                self.machine.restore_failed();
                Err(error.into())
            }
        }
    }
}

/// Asks where the registration stands.
#[derive(Message)]
#[rtype(result = "RegistrationState")]
pub struct AskLifecycle;

/// Where the registration stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, MessageResponse)]
pub struct RegistrationState(
    /// The state.
    pub State,
);

impl Handler<AskLifecycle> for LifecycleManager {
    type Result = RegistrationState;
    fn handle(&mut self, _: AskLifecycle, _: &mut Self::Context) -> Self::Result {
        RegistrationState(self.machine.state())
    }
}
