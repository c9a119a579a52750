//! Clients: give a request to P and D at once, try again when it fails.

use futures_channel::mpsc::UnboundedSender;
use futures_channel::oneshot;
use futures_util::future::join_all;
use kvbaton_actors::runtime::sleep;
use kvbaton_core::ids::{EngineId, RequestId, TransferId};
use kvbaton_transport_sim::history::Answer;
use kvbaton_transport_sim::plan::RequestPlan;
use kvbaton_transport_sim::world::own::Stage;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// One request for one engine.
pub struct Ask {
    /// Its name there.
    pub request: RequestId,
    /// Its transfer.
    pub transfer: TransferId,
    /// Blocks of its KV.
    pub blocks: u32,
    /// On D, P's engine id and bootstrap server.
    pub source: Option<(EngineId, Arc<str>)>,
    /// On D, told whether its KV is there; dropped when D's process dies.
    pub done: Option<oneshot::Sender<bool>>,
}

/// Where the current process of each engine takes requests.
#[derive(Clone, Default)]
pub struct Desks(Arc<Mutex<BTreeMap<u16, UnboundedSender<Ask>>>>);

impl Desks {
    /// A new process takes them from now on.
    pub fn open(&self, engine: u16, desk: UnboundedSender<Ask>) {
        self.0.lock().expect("no panic under the lock").insert(engine, desk);
    }

    /// Gives a request to an engine; one that is down does not get it.
    fn give(&self, engine: u16, ask: Ask) {
        if let Some(desk) = self.0.lock().expect("no panic under the lock").get(&engine) {
            let _ = desk.unbounded_send(ask);
        }
    }
}

/// All clients of a run.
pub async fn story(stage: Stage, desks: Desks) {
    let requests = stage.plan().requests.clone();
    join_all(requests.iter().map(|request| client(&stage, &desks, request))).await;
}

async fn client(stage: &Stage, desks: &Desks, plan: &RequestPlan) {
    sleep(Duration::from_millis(plan.at_ms)).await;
    for attempt in 0..=plan.retries {
        stage.submitted(plan.id, attempt, plan.prefill, plan.decode);
        let answer = ask(stage, desks, plan, attempt).await;
        let done = matches!(answer, Answer::Tokens { .. });
        stage.answered(plan.id, attempt, answer);
        if done {
            return;
        }
        sleep(Duration::from_millis(500)).await;
    }
}

async fn ask(stage: &Stage, desks: &Desks, plan: &RequestPlan, attempt: u32) -> Answer {
    let Some(source) = stage.find(plan.prefill) else { return Answer::Lost("P is down".into()) };
    let ask = |side: &str, source, done| Ask {
        request: format!("{side}{}.{attempt}", plan.id).into(),
        transfer: format!("t{}.{attempt}", plan.id).into(),
        blocks: plan.prompt_len,
        source,
        done,
    };
    let (done, loaded) = oneshot::channel();
    desks.give(plan.prefill, ask("p", None, None));
    desks.give(plan.decode, ask("d", Some(source), Some(done)));
    match loaded.await {
        Ok(true) => Answer::Tokens { tokens: vec![], expected: vec![vec![]] },
        Ok(false) => Answer::LoadFailed,
        Err(_) => Answer::Lost("D is down".into()),
    }
}
