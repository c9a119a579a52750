//! A node's calls as awaitables of asyncio.
//!
//! One thread per node drives the futures and hands each result to its event loop.

use crate::blocks::{Blocks, lists};
use crate::node::{Load, seconds};
use crate::{errors, event, status};
use futures_channel::mpsc::{UnboundedSender, unbounded};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use kvbaton_actors::node::{Load as Wanted, NodeHandle};
use pyo3::prelude::*;

/// What a finished future makes of its result, with the GIL.
type Finish = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// The awaitable forms of a node's calls; `node.aio` gives it.
#[pyclass(frozen, module = "kvbaton")]
pub struct AsyncNode {
    handle: NodeHandle,
    tasks: UnboundedSender<BoxFuture<'static, ()>>,
}

impl AsyncNode {
    /// Starts the thread; it ends with the last reference to this.
    pub fn new(handle: NodeHandle) -> PyResult<Self> {
        let (tasks, incoming) = unbounded::<BoxFuture<'static, ()>>();
        std::thread::Builder::new()
            .name("kvbaton-asyncio".into())
            .spawn(move || {
                futures_executor::block_on(incoming.for_each_concurrent(None, |task| task));
            })
            .map_err(|error| errors::KvBatonError::new_err(format!("no thread: {error}")))?;
        Ok(Self { handle, tasks })
    }

    /// Runs `work` and gives the asyncio future of what `finish` makes of it.
    fn spawn<'py, T: Send + 'static>(
        &self,
        py: Python<'py>,
        work: impl Future<Output = T> + Send + 'static,
        finish: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Bound<'py, PyAny>> {
        let running = py.import("asyncio")?.call_method0("get_running_loop")?;
        let future = running.call_method0("create_future")?;
        let (target, running) = (future.clone().unbind(), running.unbind());
        let task = async move {
            let result = work.await;
            let finish: Finish = Box::new(move |py| finish(py, result));
            // Without an interpreter nobody waits any more.
            let _ = Python::try_attach(|py| settle(py, &running, &target, finish));
        };
        self.tasks.unbounded_send(Box::pin(task)).map_err(|_| errors::stopped())?;
        Ok(future)
    }
}

/// Sets a future's result on its loop's thread, unless it was cancelled or the loop closed.
fn settle(py: Python<'_>, running: &Py<PyAny>, future: &Py<PyAny>, finish: Finish) {
    let set = || -> PyResult<()> {
        let (value, error) = match finish(py) {
            Ok(value) => (value, py.None()),
            Err(error) => (py.None(), error.into_value(py).into_any()),
        };
        let module = py.import("kvbaton._futures")?;
        let set = module.getattr("set_result")?;
        running.call_method1(py, "call_soon_threadsafe", (set, future, value, error))?;
        Ok(())
    };
    if let Err(error) = set() {
        tracing::debug!(%error, "nobody waits for this call any more");
    }
}

fn none(py: Python<'_>) -> PyResult<Py<PyAny>> {
    Ok(py.None())
}

#[pymethods]
impl AsyncNode {
    /// `Node.hold`.
    #[pyo3(signature = (request, transfer, blocks, end_token = None))]
    fn hold<'py>(
        &self,
        py: Python<'py>,
        request: String,
        transfer: String,
        blocks: Blocks,
        end_token: Option<u32>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (handle, blocks) = (self.handle.clone(), lists(&blocks));
        let work =
            async move { handle.hold(request.into(), transfer.into(), blocks, end_token).await };
        self.spawn(py, work, |py, result| result.map_err(errors::hold).and_then(|()| none(py)))
    }

    /// `Node.abort`.
    fn abort<'py>(&self, py: Python<'py>, transfer: String) -> PyResult<Bound<'py, PyAny>> {
        let handle = self.handle.clone();
        self.spawn(py, async move { handle.abort(transfer.into()).await }, |py, ()| none(py))
    }

    /// `Node.release`.
    fn release<'py>(&self, py: Python<'py>, transfer: String) -> PyResult<Bound<'py, PyAny>> {
        let handle = self.handle.clone();
        self.spawn(py, async move { handle.release(transfer.into()).await }, |py, ()| none(py))
    }

    /// `Node.load`.
    fn load<'py>(&self, py: Python<'py>, load: PyRef<'_, Load>) -> PyResult<Bound<'py, PyAny>> {
        let (handle, load) = (self.handle.clone(), load.0.clone());
        self.spawn(py, async move { handle.load(vec![load]).await }, |py, results| {
            for result in results {
                result.map_err(|error| errors::load(&error))?;
            }
            none(py)
        })
    }

    /// `Node.load_all`.
    fn load_all<'py>(
        &self,
        py: Python<'py>,
        loads: Vec<PyRef<'_, Load>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let handle = self.handle.clone();
        let loads: Vec<Wanted> = loads.iter().map(|it| it.0.clone()).collect();
        self.spawn(py, async move { handle.load(loads).await }, |py, results| {
            let results: Vec<Option<PyErr>> =
                results.into_iter().map(|it| it.err().map(|it| errors::load(&it))).collect();
            Ok(results.into_pyobject(py)?.into_any().unbind())
        })
    }

    /// `Node.drop`.
    fn drop<'py>(&self, py: Python<'py>, requests: Vec<String>) -> PyResult<Bound<'py, PyAny>> {
        let handle = self.handle.clone();
        let requests = requests.into_iter().map(Into::into).collect();
        self.spawn(py, async move { handle.drop_loads(requests).await }, |py, ()| none(py))
    }

    /// Completes once there are events, or the node was closed (then empty).
    fn events<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let handle = self.handle.clone();
        self.spawn(py, async move { handle.events().await }, |py, events| {
            Ok(event::to_python(py, events)?.into_pyobject(py)?.into_any().unbind())
        })
    }

    /// `Node.unregister`.
    #[pyo3(signature = (drain = 5.0))]
    fn unregister<'py>(&self, py: Python<'py>, drain: f64) -> PyResult<Bound<'py, PyAny>> {
        let (handle, drain) = (self.handle.clone(), seconds(drain)?);
        self.spawn(py, async move { handle.unregister(drain).await }, |py, result| {
            result.map_err(errors::registration).and_then(|()| none(py))
        })
    }

    /// `Node.restore`.
    fn restore<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let handle = self.handle.clone();
        // SAFETY: as for `Node.restore`; once the node has ended this does nothing.
        let work = async move { unsafe { handle.restore() }.await };
        self.spawn(py, work, |py, result| {
            result.map_err(errors::registration).and_then(|()| none(py))
        })
    }

    /// `Node.status`.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let handle = self.handle.clone();
        self.spawn(py, async move { handle.status().await }, |py, found| {
            let found = found.ok_or_else(errors::stopped)?;
            Ok(status::to_python(py, &found)?.into_any().unbind())
        })
    }
}
