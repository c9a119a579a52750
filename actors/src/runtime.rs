//! The only place where production and simulation differ.
//!
//! * production: actix as it always is (System, tokio's LocalSet and timers)
//! * `--cfg madsim`: every actor is one madsim task with a `LocalSet` of its own, so
//!   that killing a simulated node drops its actors, and a panic in a handler is not
//!   swallowed.
#![allow(clippy::disallowed_methods, reason = "the facade wraps what it bans elsewhere")]

use actix::prelude::*;
use futures_util::future::{Either, select};
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context as Cx, Poll, Waker};
use std::time::Duration;

/// Monotonic time; virtual inside the simulation.
pub use std::time::Instant;

/// Runs `future` to its end where actors can be started: on an actix System.
#[cfg(not(madsim))]
pub fn run<F: Future + 'static>(future: F) -> F::Output {
    System::new().block_on(future)
}

/// Runs `future` to its end where actors can be started: in a simulated world of its own.
#[cfg(madsim)]
pub fn run<F: Future + 'static>(future: F) -> F::Output {
    madsim::runtime::Runtime::new().block_on(future)
}

/// Time since `start` as the current node's clock counts it.
#[cfg(not(madsim))]
#[must_use]
pub fn elapsed(start: Instant) -> Duration {
    start.elapsed()
}

/// Time since `start` as the current node's clock counts it.
#[cfg(madsim)]
#[must_use]
pub fn elapsed(start: Instant) -> Duration {
    drift::of_the_node(start.elapsed())
}

/// Simulated nodes whose clocks run faster or slower than the world's.
#[cfg(madsim)]
pub mod drift {
    use madsim::task::NodeId;
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::time::Duration;

    const MILLION: i128 = 1_000_000;

    thread_local!(static RATES: RefCell<BTreeMap<NodeId, i32>> = const { RefCell::new(BTreeMap::new()) });

    /// Makes the current node's clock run faster by `ppm` parts per million, -500,000 to
    /// 500,000. A run needs a thread of its own, as it does anyway.
    pub fn set(ppm: i32) {
        let ppm = ppm.clamp(-500_000, 500_000);
        RATES.with_borrow_mut(|rates| rates.insert(madsim::plugin::node(), ppm));
    }

    fn rate() -> i128 {
        let ppm = RATES.with_borrow(|rates| {
            if rates.is_empty() { 0 } else { *rates.get(&madsim::plugin::node()).unwrap_or(&0) }
        });
        MILLION + i128::from(ppm)
    }

    fn scaled(time: Duration, by: i128, of: i128) -> Duration {
        let nanos = i128::try_from(time.as_nanos()).unwrap_or(i128::MAX / MILLION / 2);
        Duration::from_nanos(u64::try_from(nanos * by / of).unwrap_or(u64::MAX))
    }

    /// What the node's clock shows of a time in the world.
    pub(super) fn of_the_node(time: Duration) -> Duration {
        match rate() {
            MILLION => time,
            rate => scaled(time, rate, MILLION),
        }
    }

    /// How long a time of the node's clock takes in the world.
    pub(super) fn in_the_world(time: Duration) -> Duration {
        match rate() {
            MILLION => time,
            // Rounded up: a timer never rings before the clock shows its time.
            rate => scaled(time, MILLION, rate) + Duration::from_nanos(1),
        }
    }
}

/// Starts an actor on the current node.
pub fn start<A: Actor<Context = Context<A>>>(actor: A) -> Addr<A> {
    create(|_| actor)
}

/// Starts an actor that is made with its own context.
#[cfg(not(madsim))]
pub fn create<A: Actor<Context = Context<A>>>(make: impl FnOnce(&mut Context<A>) -> A) -> Addr<A> {
    A::create(make)
}

/// Starts an actor that is made with its own context. The simulator polls it, not the
/// `LocalSet`: tokio would catch a handler's panic and the run would go on without it.
#[cfg(madsim)]
pub fn create<A: Actor<Context = Context<A>>>(make: impl FnOnce(&mut Context<A>) -> A) -> Addr<A> {
    let set = real_tokio::task::LocalSet::new();
    let mut context = Context::new();
    let actor = make(&mut context);
    let running = context.into_future(actor);
    let address = running.address();
    madsim::task::spawn_local(async move {
        set.run_until(running).await;
        set.await
    });
    address
}

/// Runs a plain task on the current node.
pub fn spawn_local(task: impl Future<Output = ()> + 'static) {
    #[cfg(madsim)]
    madsim::task::spawn_local(task);
    #[cfg(not(madsim))]
    actix::spawn(task);
}

/// A timer that registers once per waker. The simulator's own adds an entry at every
/// poll, and actix polls every item of a context at every wake-up.
pub struct Sleep {
    inner: Pin<Box<tokio::time::Sleep>>,
    registered: Option<Waker>,
}

/// Completes after `duration`.
#[must_use]
pub fn sleep(duration: Duration) -> Sleep {
    #[cfg(madsim)]
    let duration = drift::in_the_world(duration);
    Sleep { inner: Box::pin(tokio::time::sleep(duration)), registered: None }
}

impl Future for Sleep {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<()> {
        let known = self.registered.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        if cfg!(madsim) && known && !self.inner.is_elapsed() {
            return Poll::Pending;
        }
        let polled = self.inner.as_mut().poll(cx);
        if polled.is_pending() {
            self.registered = Some(cx.waker().clone());
        }
        polled
    }
}

/// The bound of [`timeout`] passed.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub struct Elapsed;

/// Polls the future first, then the clock.
///
/// # Errors
/// [`Elapsed`] when `bound` passed first.
pub async fn timeout<F: Future>(bound: Duration, future: F) -> Result<F::Output, Elapsed> {
    match select(pin!(future), sleep(bound)).await {
        Either::Left((output, _)) => Ok(output),
        Either::Right(_) => Err(Elapsed),
    }
}

/// Replaces `run_later`, which the simulator does not know.
pub trait Timers<A: Actor<Context = Self>>: AsyncContext<A> {
    /// Runs `action` after `delay`; cancel it with `cancel_future`.
    fn after<F>(&mut self, delay: Duration, action: F) -> SpawnHandle
    where
        F: FnOnce(&mut A, &mut Self) + 'static,
    {
        let sleeping = actix::fut::wrap_future::<_, A>(sleep(delay));
        self.spawn(sleeping.map(move |(), actor, context| action(actor, context)))
    }
}

impl<A: Actor<Context = Context<A>>> Timers<A> for Context<A> {}
