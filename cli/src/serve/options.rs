//! What a stand-alone node is told on the command line.

use crate::mapping::Mapping;
use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use kvbaton_actors::engine::EngineConfig;
use kvbaton_actors::node::registration::Memory;
use kvbaton_actors::node::{NodeConfig, Role};
use kvbaton_core::fingerprint::Fingerprint;
use kvbaton_core::ids::Bytes;
use kvbaton_core::layout::{Layout, Tensor, TensorKind, TensorSpec};
use kvbaton_core::lifecycle::engine::Bounds;
use kvbaton_core::plan::{GroupSpec, Heads, LocalLayout};
use kvbaton_core::region::GroupKind;
use kvbaton_core::topology::Topology;
use kvbaton_transport_tcp::TcpConfig;
use kvbaton_transport_tcp::key::ClusterKey;
use kvbaton_transport_tcp::network::AllowedNetworks;
use std::path::PathBuf;
use std::time::Duration;

/// Run one stand-alone node whose KV is a file or anonymous memory.
///
/// For interoperation tests and for operators who want to see a node alone. It is driven
/// over HTTP: GET /status, /metrics, /health, /events?wait=SECONDS, /kv?offset=N&len=N;
/// POST /hold, /abort, /release, /load, /drop, /unregister, /restore with JSON bodies.
///
/// Its lifecycle: POST /pause {"mode": "abort"|"wait"|"keep", "clear": false}, /resume,
/// /sleep {"level": 0|1|2, "mode": …}, /wake {"parts": "all"|"weights"|"kv"},
/// /release-kv {"mode": …}, /update-weights {"version": N, "mode": …}, /abort-transfers,
/// /abort-requests, /reset {"running": false}. Each answers once it is done or has been taken
/// back: 200; 409 when the engine is busy, was resumed or cannot do it now; 504 when something
/// did not end in time, with its name; 500 when a part failed. "mode" is "keep" unless said.
/// Asleep at level 1 or 2 the KV memory is the system's again. GET /status shows the state,
/// for how long, what runs and what it waits for.
///
/// The memory holds --layers layers one after the other, each --blocks blocks of
/// --block-bytes bytes. Log lines go to stderr: warnings, or what RUST_LOG asks for
/// (RUST_LOG=kvbaton_actors=debug shows every pull and write).
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Which sides the node plays.
    #[arg(long, value_enum, default_value_t = RoleArg::Both)]
    role: RoleArg,
    /// Engine id; a restarted engine must use a new one.
    #[arg(long)]
    pub engine_id: String,
    /// Interface for control plane, data plane, HTTP and bootstrap server.
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,
    /// Host that peers are told; needed with a wildcard --host.
    #[arg(long)]
    advertise_host: Option<String>,
    /// HTTP port; 0 takes any free one.
    #[arg(long, default_value_t = 0)]
    pub http_port: u16,
    /// Control-plane port; 0 takes any free one.
    #[arg(long, default_value_t = 0)]
    control_port: u16,
    /// Data-plane port; 0 takes any free one.
    #[arg(long, default_value_t = 0)]
    data_port: u16,
    /// Bootstrap server where a prefill announces itself (http://host:port).
    #[arg(long, conflicts_with = "serve_bootstrap")]
    pub bootstrap: Option<String>,
    /// Run a bootstrap server on this port (0: any free one).
    #[arg(long, value_name = "PORT")]
    pub serve_bootstrap: Option<u16>,
    /// File that holds the KV; made, or grown to the length needed. Default: anonymous memory.
    #[arg(long, value_name = "FILE")]
    pub kv: Option<PathBuf>,
    /// Layers.
    #[arg(long, default_value_t = 4)]
    layers: u32,
    /// Blocks per layer.
    #[arg(long, default_value_t = 256)]
    blocks: u32,
    /// Bytes of one block of one layer.
    #[arg(long, default_value_t = 16 << 10)]
    block_bytes: u64,
    /// Tokens per block.
    #[arg(long, default_value_t = 16)]
    block_tokens: u32,
    /// KV heads of the whole model; 0 for latent KV, which every rank holds whole.
    #[arg(long, default_value_t = 1)]
    kv_heads: u32,
    /// Layer names; {} stands for the layer's number.
    #[arg(long, default_value = "model.layers.{}.self_attn.attn")]
    layer_name: String,
    /// Tensor-parallel rank and size, as RANK/SIZE.
    #[arg(long, default_value = "0/1", value_parser = rank)]
    tp: (u32, u32),
    /// Pipeline-parallel rank and size, as RANK/SIZE.
    #[arg(long, default_value = "0/1", value_parser = rank)]
    pp: (u32, u32),
    /// Data connections to each peer.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// File with the cluster key: 64 hexadecimal digits or a passphrase.
    #[arg(long, value_name = "FILE")]
    cluster_key_file: Option<PathBuf>,
    /// Serve peers that prove nothing although there is a key, or refuse them although
    /// there is none.
    #[arg(long)]
    allow_stock_peers: Option<bool>,
    /// Networks where peers may live, as CIDR. Default: loopback and private ones.
    #[arg(long, value_delimiter = ',')]
    allowed_networks: Vec<String>,
    /// Seconds that finished requests wait to be pulled.
    #[arg(long, default_value_t = 480.0)]
    hold_timeout: f64,
    /// Seconds that a load may take.
    #[arg(long, default_value_t = 540.0)]
    load_timeout: f64,
    /// Seconds that a write may take.
    #[arg(long, default_value_t = 30.0)]
    write_timeout: f64,
    /// Whether memory may sleep. The node does not start where its transport cannot.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    sleep: bool,
    /// Seconds that a pause in mode wait with clearing leaves D to pull what is held.
    #[arg(long, default_value_t = 10.0)]
    drain: f64,
    /// Seconds that an operation waits for loads to finish, blocks to come back or memory to
    /// be out of use, each.
    #[arg(long, default_value_t = 30.0)]
    patience: f64,
    /// Layouts of D ranks that a prefill keeps.
    #[arg(long, default_value_t = 1024)]
    peer_layouts: usize,
    /// Print where the node is as one JSON object.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RoleArg {
    Prefill,
    Decode,
    Both,
}

fn rank(text: &str) -> Result<(u32, u32), String> {
    let parsed = text
        .split_once('/')
        .and_then(|(rank, size)| Some((rank.parse::<u32>().ok()?, size.parse::<u32>().ok()?)));
    match parsed {
        Some((rank, size)) if rank < size => Ok((rank, size)),
        _ => Err(format!("`{text}` must be RANK/SIZE with RANK below SIZE, for instance 0/1")),
    }
}

fn seconds(value: f64, name: &str) -> Result<Duration> {
    Duration::try_from_secs_f64(value)
        .ok()
        .filter(|it| !it.is_zero())
        .with_context(|| format!("--{name} must be a number of seconds above 0"))
}

impl ServeArgs {
    pub(super) fn kv_bytes(&self) -> Result<usize> {
        let bytes = u64::from(self.layers) * u64::from(self.blocks);
        let bytes = bytes.checked_mul(self.block_bytes).filter(|it| *it > 0);
        let bytes =
            bytes.context("--layers, --blocks and --block-bytes must be above 0 and fit memory")?;
        Ok(usize::try_from(bytes)?)
    }

    pub(super) fn node_config(&self, bootstrap: Option<String>) -> Result<NodeConfig> {
        let role = match self.role {
            RoleArg::Prefill => Role::Prefill,
            RoleArg::Decode => Role::Decode,
            RoleArg::Both => Role::Both,
        };
        let mut config = NodeConfig::new(self.engine_id.clone().into(), role);
        config.topology = Topology {
            tp_rank: self.tp.0,
            tp_size: self.tp.1,
            pp_rank: self.pp.0,
            pp_size: self.pp.1,
        };
        config.bootstrap = bootstrap.map(Into::into);
        config.peer_layouts = self.peer_layouts;
        config.sleep = self.sleep;
        config.sender.hold_timeout = seconds(self.hold_timeout, "hold-timeout")?;
        config.sender.write_timeout = seconds(self.write_timeout, "write-timeout")?;
        config.receiver.load_timeout = seconds(self.load_timeout, "load-timeout")?;
        Ok(config)
    }

    pub(super) fn lifecycle(&self) -> Result<EngineConfig> {
        let patience = seconds(self.patience, "patience")?;
        let drain = Duration::try_from_secs_f64(self.drain).context("--drain")?;
        let bounds = Bounds {
            drain,
            finish: patience,
            blocks: patience,
            release: patience,
            lease: patience + Bounds::default().lease,
            ..Bounds::default()
        };
        Ok(EngineConfig { bounds, sleep: self.sleep, ..EngineConfig::default() })
    }

    pub(super) fn transport(&self) -> Result<TcpConfig> {
        let key = match &self.cluster_key_file {
            None => None,
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .with_context(|| format!("cannot read the cluster key {}", path.display()))?;
                Some(ClusterKey::parse(&text).context("the cluster key")?)
            }
        };
        let networks = match &self.allowed_networks[..] {
            [] => AllowedNetworks::default(),
            some => AllowedNetworks::parse(some.iter().map(String::as_str))?,
        };
        Ok(TcpConfig {
            host: self.host.clone(),
            advertise_host: self.advertise_host.clone(),
            control_port: self.control_port,
            data_port: self.data_port,
            connections_per_peer: usize::from(self.connections),
            key,
            allow_stock_peers: self.allow_stock_peers,
            networks,
            ..TcpConfig::default()
        })
    }

    /// One tensor per layer, layers one after the other.
    pub(super) fn layout(&self, mapping: &Mapping, topology: Topology) -> Result<Memory> {
        let (blocks, bytes) = (u64::from(self.blocks), self.block_bytes);
        ensure!(bytes.is_multiple_of(64), "--block-bytes must be a multiple of 64");
        let kind = if self.kv_heads == 0 { TensorKind::Latent } else { TensorKind::Attention };
        let layers = stage(self.layers, topology);
        let tensors: Vec<Tensor> = layers
            .enumerate()
            .map(|(row, layer)| Tensor {
                layer_name: self.layer_name.replace("{}", &layer.to_string()),
                group: 0,
                storage: mapping.range(),
                offset: Bytes(row as u64 * blocks * bytes),
                shape: vec![blocks, 1, 1, bytes],
                strides: vec![bytes, bytes, bytes, 1],
                element_size: Bytes(1),
                spec: TensorSpec { kind, page_size: Bytes(bytes) },
            })
            .collect();
        let heads =
            if self.kv_heads == 0 { Heads::Replicated } else { Heads::Split(self.kv_heads) };
        let groups =
            vec![GroupSpec { kind: GroupKind::Attention, heads, block_tokens: self.block_tokens }];
        let layout = Layout::build(&tensors, blocks, 1)?;
        let mut local = LocalLayout::new(topology, layout, groups, 1);
        local.fingerprint = Some(Fingerprint {
            model: "kvbaton serve".into(),
            dtype: "bytes".into(),
            block_size: vec![self.block_tokens],
            total_kv_heads: self.kv_heads,
            groups: vec![GroupKind::Attention],
        });
        Ok(Memory::new(local)?)
    }
}

/// Numbers of the layers that a pipeline stage holds, of `layers` on it.
fn stage(layers: u32, topology: Topology) -> std::ops::Range<u32> {
    topology.pp_rank * layers..(topology.pp_rank + 1) * layers
}
