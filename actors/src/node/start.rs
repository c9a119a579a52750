//! Starting a node's actors, and the thread they live on.

use super::config::NodeConfig;
use super::handle::NodeHandle;
use crate::clock::Clock;
use crate::decode_receiver::{Connect, DecodeReceiver};
use crate::discovery::{Announce, Discovery};
use crate::events::EventQueue;
use crate::layout_cache::{Arrived, LayoutCache};
use crate::lifecycle_manager::{LifecycleManager, Others};
use crate::prefill_sender::PrefillSender;
use crate::runtime;
use crate::transport::{
    Inbound, RankExtension, RankRegistration, Transport, TransportError, TransportFactory,
};
use kvbaton_core::ids::Incarnation;
use kvbaton_core::receiver::Receiver;
use kvbaton_core::sender::Sender;
use kvbaton_core::wire::REVISION;
use std::num::NonZeroUsize;
use std::rc::Rc;

/// Why a node did not start, or cannot do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    /// The configuration makes no sense.
    #[error("the node's configuration: {0}")]
    Config(String),
    /// The transport could not be opened.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// Memory may sleep, but the transport cannot register it again `[S03]`.
    #[error("sleep is enabled, but {0}; use a transport that can, or start without sleep")]
    CannotSleep(String),
    /// Its thread could not be made.
    #[error("the node's thread cannot be started: {0}")]
    Thread(String),
    /// It was stopped.
    #[error("the node has stopped; start a new one")]
    Stopped,
}

/// Opens the transport and starts the actors on the current runtime. [`super::Node`]
/// does it on a thread of its own; a simulation does it on a simulated node.
///
/// # Errors
/// When the configuration makes no sense, or the transport cannot be opened.
pub async fn start_actors(
    config: NodeConfig,
    factory: Box<dyn TransportFactory>,
) -> Result<NodeHandle, NodeError> {
    config.check().map_err(NodeError::Config)?;
    crate::metric::describe();
    let Transport { control, data, bootstrap } = factory.open().await?;
    if let Some(why) = data.capabilities().cannot_sleep().filter(|_| config.sleep) {
        return Err(NodeError::CannotSleep(why));
    }
    let mut receiver_config = config.receiver.clone();
    receiver_config.revoke_settles = data.capabilities().per_write_grants;
    let (clock, events) = (Clock::start(), EventQueue::default());
    let incarnation = Incarnation(rand::random::<u64>() | 1);

    let machine = Sender::new(config.sender.clone(), incarnation, 0);
    let sender = runtime::start(PrefillSender::new(machine, clock, data.clone(), events.clone()));
    let machine = Receiver::new(receiver_config, config.topology);
    let receiver = runtime::start(DecodeReceiver::new(
        machine,
        clock,
        control.clone(),
        data.clone(),
        events.clone(),
        config.limits,
    ));
    let discovery =
        runtime::start(Discovery::new(bootstrap, receiver.clone(), config.announce_every));
    receiver.do_send(Connect(discovery.clone()));
    let capacity = NonZeroUsize::new(config.peer_layouts).expect("checked");
    let limits = config.limits;
    let layouts =
        runtime::start(LayoutCache::new(capacity, clock, incarnation, limits, sender.clone()));

    let mut address = None;
    if config.role.sends() {
        let front = layouts.clone();
        let inbox = Rc::new(move |inbound: Inbound| front.do_send(Arrived(inbound)));
        address = Some(control.listen(inbox).await?);
    }
    let announce = announcement(&config, address.as_deref(), incarnation);
    let others = Others {
        sender: sender.clone(),
        receiver: receiver.clone(),
        layouts: layouts.clone(),
        discovery,
    };
    let lifecycle = runtime::start(LifecycleManager::new(clock, data.clone(), others, announce));
    Ok(NodeHandle::new(sender, receiver, lifecycle, layouts, data, events, address))
}

fn announcement(
    config: &NodeConfig,
    address: Option<&str>,
    incarnation: Incarnation,
) -> Option<Announce> {
    let (Some(address), Some(server)) = (address, &config.bootstrap) else { return None };
    Some(Announce {
        server: server.clone(),
        rank: RankRegistration {
            engine_id: config.engine_id.clone(),
            dp_rank: config.dp_rank,
            tp_rank: config.topology.tp_rank,
            pp_rank: config.topology.pp_rank,
            address: address.into(),
            extension: RankExtension {
                revision: REVISION,
                features: 0,
                incarnation: incarnation.0,
                fingerprint: String::new(),
                sizes: (config.topology.tp_size, config.topology.pp_size),
            },
        },
    })
}
