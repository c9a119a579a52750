//! The bootstrap server's actor: P's rank is announced there, D asks it for P's ranks.

use crate::decode_receiver::{DecodeReceiver, Discovered};
use crate::metric;
use crate::runtime::Timers;
use crate::transport::{Bootstrap, Directory, RankRegistration, TransportError};
use actix::prelude::*;
use kvbaton_core::directory::{EngineRanks, OurRank, Rank};
use kvbaton_core::ids::{EngineId, Incarnation};
use kvbaton_core::planted::{self, Bug};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The actor.
pub struct Discovery {
    bootstrap: Rc<dyn Bootstrap>,
    receiver: Addr<DecodeReceiver>,
    /// Servers with a question in flight: one at a time each.
    asking: BTreeSet<Arc<str>>,
    /// A bootstrap server that restarts has forgotten us: say it again now and then.
    repeat: Duration,
    announced: Option<SpawnHandle>,
}

impl Discovery {
    /// An actor that tells `receiver` what bootstrap servers answer.
    pub fn new(
        bootstrap: Rc<dyn Bootstrap>,
        receiver: Addr<DecodeReceiver>,
        repeat: Duration,
    ) -> Self {
        Self { bootstrap, receiver, asking: BTreeSet::new(), repeat, announced: None }
    }

    fn announce_later(&mut self, announce: Announce, context: &mut Context<Self>) {
        if let Some(handle) = self.announced.take() {
            context.cancel_future(handle);
        }
        let again = context.after(self.repeat, move |this, context| {
            let asked = this.bootstrap.register(&announce.server, announce.rank.clone());
            let said = actix::fut::wrap_future::<_, Self>(asked).map(|said, this, context| {
                if let Err(error) = said {
                    tracing::warn!(%error, server = %announce.server, "cannot announce this rank again");
                }
                this.announce_later(announce, context);
            });
            this.announced = Some(context.spawn(said));
        });
        self.announced = Some(again);
    }
}

impl Actor for Discovery {
    type Context = Context<Self>;
}

/// Announces P's rank, now and again every so often.
#[derive(Message, Clone)]
#[rtype(result = "Result<(), TransportError>")]
pub struct Announce {
    /// The server (`http://host:port`).
    pub server: Arc<str>,
    /// The rank.
    pub rank: RankRegistration,
}

impl Handler<Announce> for Discovery {
    type Result = ResponseActFuture<Self, Result<(), TransportError>>;
    fn handle(&mut self, announce: Announce, _: &mut Self::Context) -> Self::Result {
        let asked = self.bootstrap.register(&announce.server, announce.rank.clone());
        let said = actix::fut::wrap_future::<_, Self>(asked).map(|said, this, context| {
            // A server that cannot be reached now may be there later.
            if !planted::is(Bug::AnnouncedOnce) {
                this.announce_later(announce, context);
            }
            said
        });
        Box::pin(said)
    }
}

/// Asks a server for P's ranks; the receiver is told.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Ask(
    /// The server.
    pub Arc<str>,
);

impl Handler<Ask> for Discovery {
    type Result = ();
    fn handle(&mut self, Ask(server): Ask, context: &mut Self::Context) {
        if !self.asking.insert(server.clone()) {
            return;
        }
        let asked = self.bootstrap.query(&server);
        let told =
            actix::fut::wrap_future::<_, Self>(asked).map(move |answer, this: &mut Self, _| {
                metric::discovery(answer.is_ok());
                this.asking.remove(&server);
                let answer = answer.map(engines).map_err(|error| error.to_string());
                this.receiver.do_send(Discovered { bootstrap: server, answer });
            });
        context.spawn(told);
    }
}

fn engines(directory: Directory) -> Vec<(EngineId, EngineRanks)> {
    directory
        .into_values()
        .map(|entry| {
            let stages = |stages: std::collections::BTreeMap<u32, crate::transport::RankEntry>| {
                stages.into_iter().map(|(pp, rank)| (pp, known(rank))).collect()
            };
            let ranks = entry.ranks.into_iter().map(|(tp, it)| (tp, stages(it))).collect();
            (entry.engine_id, ranks)
        })
        .collect()
}

fn known(entry: crate::transport::RankEntry) -> Rank {
    let ours = entry.extension.filter(|it| it.revision > 0).map(|it| OurRank {
        revision: it.revision,
        features: it.features,
        incarnation: Incarnation(it.incarnation),
        sizes: it.sizes,
    });
    Rank { address: entry.address.into(), ours }
}
