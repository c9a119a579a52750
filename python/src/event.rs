//! What a node tells its engine.

use kvbaton_actors::events::Event;
use kvbaton_core::receiver::LoadEnd;
use kvbaton_core::sender::Ended;
use pyo3::prelude::*;

/// P: a held request's blocks are the engine's again.
#[pyclass(frozen, eq, module = "kvbaton")]
#[derive(Debug, Clone, PartialEq)]
pub struct SendEnded {
    /// P's request.
    #[pyo3(get)]
    request: String,
    /// The transfer.
    #[pyo3(get)]
    transfer: String,
    /// Whether D got its KV.
    #[pyo3(get)]
    sent: bool,
    /// Why not, for machines; None when it was sent.
    #[pyo3(get)]
    reason: Option<String>,
}

/// D: a load ended and its blocks are the engine's again.
#[pyclass(frozen, eq, module = "kvbaton")]
#[derive(Debug, Clone, PartialEq)]
pub struct LoadEnded {
    /// D's request.
    #[pyo3(get)]
    request: String,
    /// The transfer.
    #[pyo3(get)]
    transfer: String,
    /// "loaded", "failed" or "dropped".
    #[pyo3(get)]
    outcome: &'static str,
    /// Why it failed, for machines.
    #[pyo3(get)]
    reason: Option<String>,
    /// Why it failed, for people: what happened, to whom, what to do.
    #[pyo3(get)]
    message: Option<String>,
}

#[pymethods]
impl SendEnded {
    fn __repr__(&self) -> String {
        let Self { request, transfer, sent, reason } = self;
        let why = reason.as_deref().unwrap_or("sent");
        format!("SendEnded(request={request:?}, transfer={transfer:?}, sent={sent}, {why})")
    }
}

#[pymethods]
impl LoadEnded {
    fn __repr__(&self) -> String {
        let Self { request, transfer, outcome, message, .. } = self;
        let why = message.as_ref().map(|it| format!(", {it:?}")).unwrap_or_default();
        format!("LoadEnded(request={request:?}, transfer={transfer:?}, {outcome}{why})")
    }
}

/// Events as Python objects, in order.
pub fn to_python(py: Python<'_>, events: Vec<Event>) -> PyResult<Vec<Py<PyAny>>> {
    events.into_iter().map(|event| one(py, event)).collect()
}

fn one(py: Python<'_>, event: Event) -> PyResult<Py<PyAny>> {
    match event {
        Event::SendEnded { request, transfer, ended } => {
            let reason = match ended {
                Ended::Sent => None,
                Ended::Failed(why) => Some(format!("{why:?}")),
            };
            let (request, transfer) = (request.to_string(), transfer.to_string());
            let sent = reason.is_none();
            Ok(Py::new(py, SendEnded { request, transfer, sent, reason })?.into_any())
        }
        Event::LoadEnded { request, transfer, end } => {
            let (outcome, reason, message) = match end {
                LoadEnd::Loaded => ("loaded", None, None),
                LoadEnd::Dropped => ("dropped", None, None),
                LoadEnd::Failed(why) => {
                    ("failed", Some(format!("{:?}", why.reason)), Some(why.message))
                }
            };
            let (request, transfer) = (request.to_string(), transfer.to_string());
            Ok(Py::new(py, LoadEnded { request, transfer, outcome, reason, message })?.into_any())
        }
    }
}
