//! `kv_connector_extra_config`: checked in every process of the engine, before anything
//! is loaded.

use crate::node::Node;
use crate::settings::{self, Table};
use kvbaton_actors::node::{NodeConfig, Role};
use kvbaton_transport_tcp::TcpConfig;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::time::Duration;

/// The connector's settings. Those of the node go by the same names as `Node`'s keywords.
#[pyclass(frozen, module = "kvbaton._kvbaton")]
pub struct ConnectorSettings {
    node: Py<PyDict>,
    /// Where prefill ranks announce themselves instead of a server of their own.
    #[pyo3(get)]
    bootstrap_server_address: Option<String>,
    /// Interface that the node listens on.
    #[pyo3(get)]
    host: Option<String>,
    /// Names the model to peers, instead of its architecture and sizes.
    #[pyo3(get)]
    model_name: Option<String>,
    /// How long a pause leaves held requests to D, in seconds.
    #[pyo3(get)]
    pause_drain: f64,
    /// How long sleeping waits for transfers, in seconds.
    #[pyo3(get)]
    sleep_drain: f64,
    /// Whether the engine may sleep while requests are held.
    #[pyo3(get)]
    idle_while_holding: bool,
}

struct Own {
    bootstrap_server_address: Option<String>,
    model_name: Option<String>,
    pause_drain: Duration,
    sleep_drain: Duration,
    idle_while_holding: bool,
}

fn own(table: &mut Table) -> Result<Own, String> {
    let address = table.text("bootstrap_server_address")?;
    if let Some(address) = &address {
        let port = address.rsplit_once(':').and_then(|(host, port)| {
            (!host.is_empty()).then(|| port.parse::<u16>().ok()).flatten()
        });
        if port.is_none_or(|it| it == 0) {
            return Err(format!(
                "setting `bootstrap_server_address`: expected \"host:port\", got {address:?}"
            ));
        }
    }
    Ok(Own {
        bootstrap_server_address: address,
        model_name: table.text("model_name")?,
        pause_drain: table.seconds("pause_drain")?.unwrap_or(Duration::from_secs(2)),
        sleep_drain: table.seconds("sleep_drain")?.unwrap_or(Duration::from_secs(10)),
        idle_while_holding: table.flag("idle_while_holding")?.unwrap_or(true),
    })
}

#[pymethods]
impl ConnectorSettings {
    /// Reads an engine's extra configuration; ConfigError names the key that is wrong.
    #[new]
    fn new(py: Python<'_>, extra: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let host = extra.and_then(|it| it.get_item("host").ok().flatten());
        let host = host.and_then(|it| it.extract().ok());
        let mut table = settings::table(extra)?;
        let own = read(&mut table, &mut NodeConfig::new("".into(), Role::Both))
            .map_err(|what| settings::refused(format!("kv_connector_extra_config: {what}")))?;
        table
            .finish()
            .map_err(|what| settings::refused(format!("kv_connector_extra_config: {what}")))?;
        Ok(Self {
            node: extra
                .map_or_else(|| PyDict::new(py), |it| it.copy().unwrap_or(it.clone()))
                .unbind(),
            bootstrap_server_address: own.bootstrap_server_address,
            host,
            model_name: own.model_name,
            pause_drain: own.pause_drain.as_secs_f64(),
            sleep_drain: own.sleep_drain.as_secs_f64(),
            idle_while_holding: own.idle_while_holding,
        })
    }

    /// Starts the worker's node. `given` are settings that the engine's configuration
    /// decides; a setting that is in both is the operator's.
    fn start_node(
        &self,
        py: Python<'_>,
        engine_id: String,
        role: &str,
        given: &Bound<'_, PyDict>,
    ) -> PyResult<Node> {
        let merged = given.copy()?;
        merged.update(self.node.bind(py).as_mapping())?;
        let role = settings::ROLES.iter().find(|(name, _)| *name == role);
        let role = role.map(|(_, role)| *role).unwrap_or_default();
        let mut config = NodeConfig::new(engine_id.as_str().into(), role);
        let mut tcp = TcpConfig::default();
        let mut table = settings::table(Some(&merged))?;
        own(&mut table)
            .and_then(|_| settings::identity(&mut table, &mut config))
            .and_then(|()| settings::bounds(&mut table, &mut config))
            .and_then(|()| settings::transport(&mut table, &mut tcp))
            .and_then(|()| table.finish())
            .map_err(settings::refused)?;
        Node::start(py, engine_id, config, tcp)
    }
}

/// What an operator may set; ranks and the like are the engine's.
fn read(table: &mut Table, config: &mut NodeConfig) -> Result<Own, String> {
    let own = own(table)?;
    settings::bounds(table, config)?;
    settings::transport(table, &mut TcpConfig::default())?;
    config.check()?;
    Ok(own)
}
