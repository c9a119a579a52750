//! `kvbaton serve`: a stand-alone node, driven over HTTP.

mod api;
mod engine;
mod lifecycle;
mod options;

use crate::mapping::Mapping;
use anyhow::{Context, Result};
use engine::{ServeEngine, ServePort};
use kvbaton_actors::engine::Engine;
use kvbaton_actors::node::Node;
use kvbaton_transport_tcp::TcpTransport;
use kvbaton_transport_tcp::bootstrap::{BootstrapConfig, BootstrapServer};
pub use options::ServeArgs;
use serde_json::json;
use std::io::Write;
use std::sync::Arc;

/// Runs the command until Ctrl-C or SIGTERM.
///
/// # Errors
/// When memory, sockets or the bootstrap server cannot be had.
pub fn run(args: &ServeArgs) -> Result<()> {
    crate::log::to_stderr();
    let len = args.kv_bytes()?;
    let mapping = match &args.kv {
        Some(file) => Mapping::of_file(file, len)?,
        None => Mapping::new(len)?,
    };
    let mapping = Arc::new(mapping);
    let bootstrap = args.start_bootstrap().transpose()?;
    let url = args.bootstrap.clone().or_else(|| bootstrap.as_ref().map(BootstrapServer::url));
    let config = args.node_config(url.clone())?;
    let layout = args.layout(&mapping, config.topology)?;
    let node = Node::start(config, TcpTransport::new(args.transport()?))?;
    // SAFETY: the mapping outlives the node (it is dropped after it, below) and is unmapped
    // only while it is not registered (`ServeEngine`), and nobody here relies on the bytes of
    // blocks that loads are writing.
    unsafe { node.register(layout) }?;
    let engine = Arc::new(ServeEngine::new(node.handle(), mapping.clone()));
    let port = Arc::new(ServePort(engine.clone()));
    let lifecycle = Engine::start(args.lifecycle()?, port, vec![Arc::new(node.handle())])?;
    let served = api::serve(&node, (engine, &lifecycle), &mapping, args, |http| {
        say(args, &node, url.as_deref(), http);
    });
    drop(lifecycle);
    drop(node);
    drop(mapping);
    served
}

impl ServeArgs {
    /// The bootstrap server, if one was asked for.
    fn start_bootstrap(&self) -> Option<Result<BootstrapServer>> {
        let port = self.serve_bootstrap?;
        let config = BootstrapConfig { host: self.host.clone(), port, ..Default::default() };
        Some(BootstrapServer::start(config).context("the bootstrap server"))
    }
}

/// Tells whoever started the node where it is: one JSON object, or lines for a person.
fn say(args: &ServeArgs, node: &Node, bootstrap: Option<&str>, http: &str) {
    let handle = node.handle();
    let mut out = std::io::stdout().lock();
    let written = if args.json {
        let object = json!({
            "http": http, "control": handle.address(), "session": handle.session().to_string(),
            "bootstrap": bootstrap, "engine_id": args.engine_id, "pid": std::process::id(),
        });
        writeln!(out, "{object}")
    } else {
        writeln!(
            out,
            "node {} is ready\n  HTTP       {http}\n  data plane {}\n  control    {}\n  bootstrap  {}",
            args.engine_id,
            handle.session(),
            handle.address().unwrap_or("- (a decode does not listen)"),
            bootstrap.unwrap_or("-"),
        )
    };
    // Whoever reads our output may be gone already; the node serves all the same.
    let _ = written.and_then(|()| out.flush());
}
