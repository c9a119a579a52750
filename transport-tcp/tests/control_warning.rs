//! The warning about listening in the open. A process of its own: it comes once.

mod rig;

use kvbaton_transport_tcp::control::ControlConfig;
use kvbaton_transport_tcp::key::ClusterKey;
use rig::{Node, run};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Counts warnings.
struct Warnings(Arc<AtomicUsize>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn z04_listening_in_the_open_without_a_key_warns_once() {
    let count = Arc::new(AtomicUsize::new(0));
    let warnings = || count.load(Ordering::Relaxed);
    let _guard = tracing::subscriber::set_default(Warnings(count.clone()));
    run(async {
        let open = ControlConfig {
            host: "0.0.0.0".to_owned(),
            advertise_host: Some("localhost".to_owned()),
            ..ControlConfig::default()
        };
        let keyed = ControlConfig { key: Some(ClusterKey::from_bytes([1; 32])), ..open.clone() };
        Node::listen(ControlConfig::default()).await;
        Node::listen(keyed).await;
        assert_eq!(warnings(), 0, "loopback, or a key");
        Node::listen(open.clone()).await;
        assert_eq!(warnings(), 1);
        Node::listen(open).await;
        assert_eq!(warnings(), 1, "once per process");
    });
}
