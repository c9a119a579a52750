//! `Node`: one rank of one engine, in this process.

use crate::aio::AsyncNode;
use crate::blocks::{Blocks, lists};
use crate::memory::{Group, Names, Owner, Tensor, memory};
use crate::{errors, event, settings, status};
use kvbaton_actors::node::{Load as Wanted, Node as Inner, NodeConfig, NodeHandle, Role};
use kvbaton_core::plan::{GroupSpec, Heads};
use kvbaton_core::region::GroupKind;
use kvbaton_core::topology::Topology;
use kvbaton_transport_tcp::{TcpConfig, TcpTransport};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// One rank of one engine: holds finished requests for decodes, loads KV from prefills.
///
/// `Node(engine_id, role="both", **settings)`; the README lists the settings. Calls that
/// wait release the GIL. A node may be used from several threads, and closes when it is
/// garbage or left as a context manager.
#[pyclass(frozen, weakref, module = "kvbaton")]
pub struct Node {
    running: Mutex<Option<Arc<Running>>>,
    engine_id: String,
    role: Role,
    topology: Topology,
    aio: Mutex<Option<Py<AsyncNode>>>,
}

/// A node and the memory it uses; the fields end in this order.
pub struct Running {
    pub node: Inner,
    pub handle: NodeHandle,
    /// What keeps registered memory alive.
    owners: Mutex<Vec<Arc<Owner>>>,
}

/// One load, as D's engine asks for it.
///
/// `engine` and `bootstrap` say where P is listed, `blocks` are logical block ids per
/// group in token order, `end_token` the tokens of the request up to their end.
#[pyclass(frozen, module = "kvbaton")]
#[derive(Clone)]
pub struct Load(pub Wanted);

#[pymethods]
impl Load {
    #[new]
    #[pyo3(signature = (request, transfer, engine, bootstrap, blocks, end_token = None))]
    fn new(
        request: String,
        transfer: String,
        engine: String,
        bootstrap: String,
        blocks: Blocks,
        end_token: Option<u32>,
    ) -> Self {
        Self(Wanted {
            request: request.into(),
            transfer: transfer.into(),
            engine: engine.into(),
            bootstrap: bootstrap.into(),
            blocks: lists(&blocks),
            end_token,
        })
    }

    fn __repr__(&self) -> String {
        let Wanted { request, transfer, engine, blocks, .. } = &self.0;
        format!("Load(request={request:?}, transfer={transfer:?}, engine={engine:?}, {blocks:?})")
    }
}

/// Seconds that a caller gives.
pub fn seconds(value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value)
        .map_err(|error| errors::ConfigError::new_err(format!("{value} seconds: {error}")))
}

#[pymethods]
impl Node {
    #[new]
    #[pyo3(signature = (engine_id, role = "both", **settings))]
    fn new(
        py: Python<'_>,
        engine_id: String,
        role: &str,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let found = settings::ROLES.iter().find(|(name, _)| *name == role);
        let Some(&(_, role)) = found else {
            let what = format!("role: expected one of prefill, decode, both, got {role:?}");
            return Err(settings::refused(what));
        };
        let mut table = settings::table(settings)?;
        let mut config = NodeConfig::new(engine_id.as_str().into(), role);
        let mut tcp = TcpConfig::default();
        settings::identity(&mut table, &mut config)
            .and_then(|()| settings::bounds(&mut table, &mut config))
            .and_then(|()| settings::transport(&mut table, &mut tcp))
            .and_then(|()| table.finish())
            .map_err(settings::refused)?;
        Self::start(py, engine_id, config, tcp)
    }

    /// Id of the engine.
    #[getter]
    fn engine_id(&self) -> &str {
        &self.engine_id
    }

    /// Control-plane address; None for a node that does not send.
    #[getter]
    fn address(&self) -> PyResult<Option<String>> {
        Ok(self.handle()?.address().map(str::to_owned))
    }

    /// Where the data plane is reached.
    #[getter]
    fn session(&self) -> PyResult<String> {
        Ok(self.handle()?.session().to_string())
    }

    /// The same node's calls as awaitables.
    #[getter]
    fn aio(&self, py: Python<'_>) -> PyResult<Py<AsyncNode>> {
        let mut aio = self.aio.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(aio) = &*aio {
            return Ok(aio.clone_ref(py));
        }
        let made = Py::new(py, AsyncNode::new(self.handle()?)?)?;
        Ok(aio.insert(made).clone_ref(py))
    }

    /// Registers KV memory; a node that sends then announces itself.
    ///
    /// `blocks` is the number of logical blocks, by default the first tensor's rows;
    /// `groups` describes each KV cache group; with `model` and `dtype` given, peers that
    /// differ are refused. The memory stays referenced until the node ends or registers
    /// other memory.
    #[pyo3(signature = (tensors, *, groups = None, blocks = None, kernel_blocks_per_block = 1,
                        padded_pages = false, model = None, dtype = None, kv_heads = 0))]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
    fn register(
        &self,
        py: Python<'_>,
        tensors: Vec<PyRef<'_, Tensor>>,
        groups: Option<Vec<PyRef<'_, Group>>>,
        blocks: Option<u64>,
        kernel_blocks_per_block: u32,
        padded_pages: bool,
        model: Option<String>,
        dtype: Option<String>,
        kv_heads: u32,
    ) -> PyResult<()> {
        let tensors: Vec<Tensor> = tensors.iter().map(|it| Tensor::clone(it)).collect();
        let readonly = tensors.iter().find(|it| it.readonly && self.role != Role::Prefill);
        if let Some(tensor) = readonly {
            return Err(errors::LayoutError::new_err(format!(
                "tensor {} is read-only, and this node loads KV into it; give writable memory",
                tensor.described.layer_name
            )));
        }
        let ratio = u64::from(kernel_blocks_per_block.max(1));
        let rows = tensors.first().and_then(|it| it.described.shape.first()).copied();
        let groups = match groups {
            Some(groups) => groups.iter().map(|it| it.0).collect(),
            None => default_groups(&tensors),
        };
        let names = (model.is_some() || dtype.is_some()).then(|| Names {
            model: model.unwrap_or_default(),
            dtype: dtype.unwrap_or_default(),
            total_kv_heads: kv_heads,
        });
        let blocks = blocks.unwrap_or(rows.unwrap_or(0) / ratio);
        let prepared = memory(
            &tensors,
            blocks,
            kernel_blocks_per_block,
            groups,
            padded_pages,
            names,
            self.topology,
        )?;
        let running = self.running()?;
        // SAFETY: buffers and torch tensors are kept until the node has ended; for plain
        // addresses the caller promises it (`Tensor.at`). Python code never relies on the
        // bytes of blocks that it has given to a load.
        let registered = py.detach(|| unsafe { running.node.register(prepared) });
        registered.map_err(errors::registration)?;
        let owners = tensors.iter().filter_map(Tensor::owner).collect();
        *running.owners.lock().unwrap_or_else(PoisonError::into_inner) = owners;
        Ok(())
    }

    /// Ends the registration once nothing uses memory, within `drain` seconds.
    /// MemoryInUse at its end: the node stays registered. Idempotent.
    #[pyo3(signature = (drain = 5.0))]
    fn unregister(&self, py: Python<'_>, drain: f64) -> PyResult<()> {
        let (running, drain) = (self.running()?, seconds(drain)?);
        py.detach(|| running.node.unregister(drain)).map_err(errors::registration)?;
        Ok(())
    }

    /// Registers the same memory again, at the same addresses. Idempotent.
    fn restore(&self, py: Python<'_>) -> PyResult<()> {
        let running = self.running()?;
        // SAFETY: as in `register`; the owners are kept while the node runs.
        py.detach(|| unsafe { running.node.restore() }).map_err(errors::registration)
    }

    /// P: a request that D will pull is scheduled. Optional.
    fn prefill_started(&self, py: Python<'_>, request: String, transfer: String) -> PyResult<()> {
        let handle = self.handle()?;
        let started = async move { handle.prefill_started(request.into(), transfer.into()).await };
        py.detach(|| futures_executor::block_on(started)).map_err(errors::hold)
    }

    /// P: a request is finished and its KV is complete; its blocks wait for D until
    /// SendEnded. HoldRefused: they stay with the caller.
    #[pyo3(signature = (request, transfer, blocks, end_token = None))]
    fn hold(
        &self,
        py: Python<'_>,
        request: String,
        transfer: String,
        blocks: Blocks,
        end_token: Option<u32>,
    ) -> PyResult<()> {
        let running = self.running()?;
        let lists = lists(&blocks);
        py.detach(|| running.node.hold(request.into(), transfer.into(), lists, end_token))
            .map_err(errors::hold)
    }

    /// P: a request ended before it was held; whoever pulls it is told at once.
    fn abort(&self, py: Python<'_>, transfer: String) -> PyResult<()> {
        let running = self.running()?;
        py.detach(|| running.node.abort(transfer.into()));
        Ok(())
    }

    /// P: a held request's blocks are wanted back; they come with SendEnded.
    fn release(&self, py: Python<'_>, transfer: String) -> PyResult<()> {
        let running = self.running()?;
        py.detach(|| running.node.release(transfer.into()));
        Ok(())
    }

    /// P: every held request's blocks are wanted back.
    fn release_all(&self, py: Python<'_>) -> PyResult<()> {
        let handle = self.handle()?;
        py.detach(|| futures_executor::block_on(handle.release_all()));
        Ok(())
    }

    /// D: starts a load; it ends with one LoadEnded. LoadRefused: it did not start.
    fn load(&self, py: Python<'_>, load: PyRef<'_, Load>) -> PyResult<()> {
        let (running, load) = (self.running()?, load.0.clone());
        let results = py.detach(|| running.node.load(vec![load]));
        results.into_iter().collect::<Result<Vec<()>, _>>().map_err(|it| errors::load(&it))?;
        Ok(())
    }

    /// D: starts loads together, in one pull per P rank. The answer has None or the
    /// LoadRefused of each.
    fn load_all(
        &self,
        py: Python<'_>,
        loads: Vec<PyRef<'_, Load>>,
    ) -> PyResult<Vec<Option<PyErr>>> {
        let running = self.running()?;
        let loads: Vec<Wanted> = loads.iter().map(|it| it.0.clone()).collect();
        let results = py.detach(|| running.node.load(loads));
        Ok(results.into_iter().map(|it| it.err().map(|it| errors::load(&it))).collect())
    }

    /// D: tells P that a request which was never loaded needs its KV no more.
    fn release_remote(&self, py: Python<'_>, load: PyRef<'_, Load>) -> PyResult<()> {
        let (running, load) = (self.running()?, load.0.clone());
        let results = py.detach(|| running.node.release_remote(vec![load]));
        results.into_iter().collect::<Result<Vec<()>, _>>().map_err(|it| errors::load(&it))?;
        Ok(())
    }

    /// D: these requests' loads are not wanted any more; their blocks come back with
    /// LoadEnded, without P's help. Unknown requests are fine.
    fn drop(&self, py: Python<'_>, requests: Vec<String>) -> PyResult<()> {
        let running = self.running()?;
        let requests = requests.into_iter().map(Into::into).collect();
        py.detach(|| running.node.drop_loads(requests));
        Ok(())
    }

    /// Takes the events that are there, without waiting.
    fn poll(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        event::to_python(py, self.running()?.node.poll())
    }

    /// Waits until there are events, or `timeout` seconds have passed (then empty).
    #[pyo3(signature = (timeout = 10.0))]
    fn wait(&self, py: Python<'_>, timeout: f64) -> PyResult<Vec<Py<PyAny>>> {
        let (running, bound) = (self.running()?, seconds(timeout)?);
        event::to_python(py, py.detach(|| running.node.wait(bound)))
    }

    /// How the node stands, as a dict of plain values.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let running = self.running()?;
        let status = py.detach(|| running.node.status()).ok_or_else(errors::stopped)?;
        status::to_python(py, &status)
    }

    /// All metrics in Prometheus' text format.
    fn metrics(&self, py: Python<'_>) -> PyResult<String> {
        let running = self.running()?;
        Ok(py.detach(|| running.node.metrics()))
    }

    /// Settles what runs, within `drain_on_stop`, and ends the node. Idempotent.
    fn close(&self, py: Python<'_>) {
        let running = self.lock().take();
        py.detach(move || drop(running));
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_how))]
    fn __exit__(&self, py: Python<'_>, _how: &Bound<'_, PyAny>) {
        self.close(py);
    }
}

impl Node {
    /// Starts a node with what was configured.
    pub fn start(
        py: Python<'_>,
        engine_id: String,
        config: NodeConfig,
        tcp: TcpConfig,
    ) -> PyResult<Self> {
        let (role, topology) = (config.role, config.topology);
        let node = py.detach(|| Inner::start(config, TcpTransport::new(tcp)));
        let node = node.map_err(errors::node)?;
        let running = Running { handle: node.handle(), node, owners: Mutex::default() };
        let (running, aio) = (Mutex::new(Some(Arc::new(running))), Mutex::new(None));
        Ok(Self { running, engine_id, role, topology, aio })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Arc<Running>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn running(&self) -> PyResult<Arc<Running>> {
        self.lock().clone().ok_or_else(errors::stopped)
    }

    fn handle(&self) -> PyResult<NodeHandle> {
        Ok(self.running()?.handle.clone())
    }
}

impl Drop for Node {
    /// Without the GIL held: settling takes time.
    fn drop(&mut self) {
        let _ = Python::try_attach(|py| self.close(py));
    }
}

fn default_groups(tensors: &[Tensor]) -> Vec<GroupSpec> {
    let last = tensors.iter().map(|it| it.described.group).max().unwrap_or(0);
    let spec = GroupSpec { kind: GroupKind::Attention, heads: Heads::Split(0), block_tokens: 0 };
    vec![spec; last as usize + 1]
}
