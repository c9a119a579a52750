//! A node's settings: keywords of `Node`, and the engine's extra configuration.

mod table;

use crate::errors::ConfigError;
use kvbaton_actors::node::{NodeConfig, Role};
use kvbaton_core::topology::Topology;
use kvbaton_transport_tcp::TcpConfig;
use kvbaton_transport_tcp::key::ClusterKey;
use kvbaton_transport_tcp::network::AllowedNetworks;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString};
use std::collections::BTreeMap;
pub use table::{Table, Value};

/// Takes a mapping of settings; entries that are `None` count as absent.
pub fn table(settings: Option<&Bound<'_, PyDict>>) -> PyResult<Table> {
    let mut values = BTreeMap::new();
    for (key, value) in settings.into_iter().flat_map(|it| it.iter()) {
        let key: String = key.extract()?;
        if !value.is_none() {
            values.insert(key, value_of(&value)?);
        }
    }
    Ok(Table::new(values))
}

fn value_of(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    // True and False are ints in Python: they come first.
    if value.is_instance_of::<PyBool>() {
        return Ok(Value::Flag(value.extract()?));
    }
    if value.is_instance_of::<PyInt>() {
        return Ok(Value::Int(value.extract().unwrap_or(i64::MAX)));
    }
    if value.is_instance_of::<PyFloat>() {
        return Ok(Value::Real(value.extract()?));
    }
    if value.is_instance_of::<PyString>() {
        return Ok(Value::Text(value.extract()?));
    }
    match value.extract::<Vec<String>>() {
        Ok(texts) => Ok(Value::Texts(texts)),
        Err(_) => Ok(Value::Other(value.repr()?.to_string())),
    }
}

/// A refused setting, as an exception.
pub fn refused(what: String) -> PyErr {
    ConfigError::new_err(what)
}

/// What `role` may be.
pub const ROLES: [(&str, Role); 3] =
    [("prefill", Role::Prefill), ("decode", Role::Decode), ("both", Role::Both)];

/// Who the node is, and where it announces itself.
pub fn identity(table: &mut Table, config: &mut NodeConfig) -> Result<(), String> {
    const RANKS: std::ops::RangeInclusive<i64> = 0..=65_535;
    let Topology { tp_rank, tp_size, pp_rank, pp_size } = &mut config.topology;
    set(tp_rank, table.count("tp_rank", RANKS)?);
    set(tp_size, table.count("tp_size", 1..=65_536)?);
    set(pp_rank, table.count("pp_rank", RANKS)?);
    set(pp_size, table.count("pp_size", 1..=65_536)?);
    set(&mut config.dp_rank, table.count("dp_rank", RANKS)?);
    if let Some(url) = table.text("bootstrap")? {
        config.bootstrap = Some(url.into());
    }
    Ok(())
}

/// Bounds of both sides.
pub fn bounds(table: &mut Table, config: &mut NodeConfig) -> Result<(), String> {
    const MANY: std::ops::RangeInclusive<i64> = 1..=1 << 24;
    let (sender, receiver) = (&mut config.sender, &mut config.receiver);
    set(&mut sender.senders, table.count("senders", 1..=65_536)?);
    set(&mut sender.senders_per_peer, table.count("senders_per_peer", 1..=65_536)?);
    set(&mut sender.hold_timeout, table.seconds("hold_timeout")?);
    set(&mut sender.pull_timeout, table.seconds("pull_timeout")?);
    set(&mut sender.answer_margin, table.seconds("answer_margin")?);
    set(&mut sender.write_timeout, table.seconds("write_timeout")?);
    set(&mut sender.max_transfers, table.count("max_transfers", MANY)?);
    set(&mut receiver.load_timeout, table.seconds("load_timeout")?);
    set(&mut receiver.max_loads, table.count("max_loads", MANY)?);
    set(&mut receiver.stock_quarantine, table.seconds("stock_quarantine")?);
    set(&mut config.peer_layouts, table.count("peer_layouts", MANY)?);
    set(&mut config.announce_every, table.seconds("announce_every")?);
    set(&mut config.drain_on_stop, table.seconds("drain_on_stop")?);
    Ok(())
}

/// Where the node listens, and whom it trusts.
pub fn transport(table: &mut Table, config: &mut TcpConfig) -> Result<(), String> {
    const PORTS: std::ops::RangeInclusive<i64> = 0..=65_535;
    set(&mut config.host, table.text("host")?);
    if let Some(host) = table.text("advertise_host")? {
        config.advertise_host = Some(host);
    }
    set(&mut config.control_port, table.count("control_port", PORTS)?);
    set(&mut config.data_port, table.count("data_port", PORTS)?);
    set(&mut config.connections_per_peer, table.count("connections_per_peer", 1..=1024)?);
    if let Some(allow) = table.flag("allow_stock_peers")? {
        config.allow_stock_peers = Some(allow);
    }
    set(&mut config.query_within, table.seconds("query_within")?);
    config.key = cluster_key(table)?;
    if let Some(networks) = table.texts("allowed_networks")? {
        let parsed = AllowedNetworks::parse(networks.iter().map(String::as_str));
        config.networks = parsed.map_err(|error| format!("setting `{error}"))?;
    }
    Ok(())
}

fn cluster_key(table: &mut Table) -> Result<Option<ClusterKey>, String> {
    let both = table.has("cluster_key") && table.has("cluster_key_file");
    let (key, file) = (table.text("cluster_key")?, table.text("cluster_key_file")?);
    if both {
        return Err("settings `cluster_key` and `cluster_key_file`: give one of them".into());
    }
    let (name, text) = match (key, file) {
        (Some(text), _) => ("cluster_key", text),
        (None, Some(path)) => match std::fs::read_to_string(&path) {
            Ok(text) => ("cluster_key_file", text),
            Err(error) => return Err(format!("setting `cluster_key_file`: {path}: {error}")),
        },
        (None, None) => return Ok(None),
    };
    ClusterKey::parse(&text).map(Some).map_err(|error| format!("setting `{name}`: {error}"))
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}
