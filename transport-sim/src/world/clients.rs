//! Clients and their router: send each request to its P and its D at once, cancel D when P
//! fails, try again, go away.

use super::door::Doors;
use super::engine::{Order, Source, Submit, Told};
use super::prompt;
use crate::history::{Answer, Lane, What};
use crate::plan::{Quirk, RequestPlan};
use crate::sim::Sim;
use futures_channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures_util::future::{Either, join_all, select};
use futures_util::{FutureExt, StreamExt};
use kvbaton_actors::runtime;
use kvbaton_core::ids::{RequestId, TransferId};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// How long a client waits before it tries again.
const AGAIN: Duration = Duration::from_millis(500);

/// One try of one request.
struct Try<'a> {
    sim: &'a Arc<Sim>,
    doors: &'a Doors,
    plan: &'a RequestPlan,
    /// Whose prompt, engines and ids it has.
    original: &'a RequestPlan,
    attempt: u32,
    prefill_request: RequestId,
    decode_request: RequestId,
    transfer: TransferId,
}

/// All clients of a plan.
pub async fn clients(sim: Arc<Sim>, doors: Doors) {
    let seats = match sim.plan.concurrency {
        0 => Semaphore::MAX_PERMITS,
        some => some as usize,
    };
    let seats = Semaphore::new(seats);
    let each = sim.plan.requests.iter().cloned();
    join_all(each.map(|plan| client(&sim, &doors, plan, &seats))).await;
}

/// Lives the life of one request's client.
async fn client(sim: &Arc<Sim>, doors: &Doors, plan: RequestPlan, seats: &Semaphore) {
    runtime::sleep(Duration::from_millis(plan.at_ms)).await;
    let _seat = seats.acquire().await.expect("it is never closed");
    let samples = match plan.quirk {
        Quirk::Samples(samples) => samples.max(1),
        _ => 1,
    };
    let each = (0..samples).map(|sample| sample_of(sim, doors, &plan, sample));
    join_all(each).await;
}

async fn sample_of(sim: &Arc<Sim>, doors: &Doors, plan: &RequestPlan, sample: u32) {
    for attempt in 0..=plan.retries {
        // Samples count as tries of their own.
        let number = sample * (plan.retries + 1) + attempt;
        let answer = Try::new(sim, doors, plan, number).run().await;
        let done = matches!(answer, Answer::Tokens { .. } | Answer::Aborted)
            && !matches!((&answer, plan.leaves_at_ms), (Answer::Aborted, None));
        sim.note(Lane::Clients, What::Answered { request: plan.id, attempt: number, answer });
        if done {
            return;
        }
        runtime::sleep(AGAIN).await;
    }
}

impl<'a> Try<'a> {
    fn new(sim: &'a Arc<Sim>, doors: &'a Doors, plan: &'a RequestPlan, attempt: u32) -> Self {
        let original = prompt::original(&sim.plan.requests, plan);
        let other = original.id;
        let own = format!("{}.{attempt}", plan.id);
        let (ids, transfer) = match plan.quirk {
            Quirk::SameIdsAs(_) if other != plan.id => {
                (format!("{other}.0"), format!("t{other}.0"))
            }
            Quirk::SameTransferAs(_) if other != plan.id => (own, format!("t{other}.0")),
            _ => (own.clone(), format!("t{own}")),
        };
        Self {
            sim,
            doors,
            plan,
            original,
            attempt,
            prefill_request: format!("p{ids}").into(),
            decode_request: format!("d{ids}").into(),
            transfer: transfer.into(),
        }
    }

    async fn run(&self) -> Answer {
        let quirk = self.plan.quirk;
        let RequestPlan { prefill, decode, .. } = *self.original;
        self.sim.note(
            Lane::Clients,
            What::Submitted { request: self.plan.id, attempt: self.attempt, prefill, decode },
        );
        let Some(door) = self.doors.get(prefill) else {
            return Answer::Lost("the prefill engine is down".into());
        };
        let source = Source { engine: door.engine_id.clone(), bootstrap: door.bootstrap.clone() };
        let wait = Duration::from_millis;
        let (p_late, d_late) = match quirk {
            Quirk::PrefillLate(ms) => (wait(ms), Duration::ZERO),
            Quirk::DecodeLate(ms) => (Duration::ZERO, wait(ms)),
            _ => (Duration::ZERO, Duration::ZERO),
        };
        let (p_tells, p_told) = unbounded();
        let (d_tells, d_told) = unbounded();
        let give_p = async {
            runtime::sleep(p_late).await;
            if quirk != Quirk::NeverPrefilled {
                self.give_prefill(p_tells).await;
            }
        };
        let give_d = async {
            runtime::sleep(d_late).await;
            if quirk != Quirk::NeverPulled {
                self.give(decode, &self.decode_request, Some(source), d_tells);
            }
        };
        let exchange = async {
            let ((), (), answer) = futures_util::join!(give_p, give_d, self.wait(p_told, d_told));
            answer
        };
        match self.plan.leaves_at_ms {
            None => exchange.await,
            Some(at) => {
                let left =
                    Duration::from_millis(at).saturating_sub(Duration::from_nanos(self.sim.now()));
                match select(pin!(exchange), pin!(runtime::sleep(left))).await {
                    Either::Left((answer, _)) => answer,
                    Either::Right(_) => {
                        self.sim.note(Lane::Clients, What::Disconnected { request: self.plan.id });
                        self.abort();
                        Answer::Aborted
                    }
                }
            }
        }
    }

    fn abort(&self) {
        for (engine, request) in [
            (self.original.prefill, &self.prefill_request),
            (self.original.decode, &self.decode_request),
        ] {
            if let Some(door) = self.doors.get(engine) {
                door.order(Order::Abort(request.clone()));
            }
        }
    }

    async fn give_prefill(&self, tells: UnboundedSender<Told>) {
        self.give(self.original.prefill, &self.prefill_request, None, tells);
        if self.plan.quirk == Quirk::ReleasedEarly {
            let soon = self.sim.some_ms("released early", self.plan.id as u16, 0, 40);
            runtime::sleep(Duration::from_nanos(soon)).await;
            if let Some(door) = self.doors.get(self.original.prefill) {
                door.order(Order::Abort(self.prefill_request.clone()));
            }
        }
    }

    fn give(
        &self,
        engine: u16,
        request: &RequestId,
        source: Option<Source>,
        told: UnboundedSender<Told>,
    ) {
        let Some(door) = self.doors.get(engine) else { return };
        door.order(Order::Submit(Submit {
            request: request.clone(),
            transfer: self.transfer.clone(),
            prompt: prompt::tokens(self.original),
            max_tokens: self.plan.max_tokens,
            source,
            told,
        }));
    }

    /// Waits for D's answer; when P fails before, D is cancelled at once `[X01]`.
    async fn wait(
        &self,
        mut p_told: UnboundedReceiver<Told>,
        mut d_told: UnboundedReceiver<Told>,
    ) -> Answer {
        if self.plan.quirk == Quirk::NeverPulled {
            return told(p_told.next().await, "the prefill engine died");
        }
        let answer = {
            let decode = d_told.next().fuse();
            match select(pin!(p_told.next()), pin!(decode)).await {
                Either::Right((answer, _)) => return told(answer, "the decode engine died"),
                Either::Left((Some(Told::Tokens { .. }), decode)) => {
                    return told(decode.await, "the decode engine died");
                }
                Either::Left((failed, decode)) => {
                    if matches!(self.plan.quirk, Quirk::NeverPrefilled | Quirk::ReleasedEarly) {
                        return told(decode.await, "the decode engine died");
                    }
                    failed
                }
            }
        };
        if let Some(door) = self.doors.get(self.original.decode) {
            door.order(Order::Abort(self.decode_request.clone()));
        }
        match answer {
            None => Answer::Lost("the prefill engine died".into()),
            Some(Told::Refused(why)) => Answer::Lost(why),
            Some(_) => Answer::Aborted,
        }
    }
}

fn told(told: Option<Told>, gone: &str) -> Answer {
    match told {
        None => Answer::Lost(gone.into()),
        Some(Told::Tokens { tokens, expected }) => Answer::Tokens { tokens, expected },
        Some(Told::LoadFailed) => Answer::LoadFailed,
        Some(Told::Aborted) => Answer::Aborted,
        Some(Told::Refused(why)) => Answer::Lost(why),
    }
}
