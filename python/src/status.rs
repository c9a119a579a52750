//! A node's status as a dict.

use kvbaton_actors::node::NodeStatus;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Plain values under the names of the documentation.
pub fn to_python<'py>(py: Python<'py>, status: &NodeStatus) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("registration", status.registration.name())?;
    dict.set_item("held", status.sender.held)?;
    dict.set_item("transfers", status.sender.transfers)?;
    dict.set_item("writes", status.sender.writes)?;
    dict.set_item("open_pulls", status.sender.open_pulls)?;
    dict.set_item("loads", status.receiver.loads)?;
    dict.set_item("peer_layouts", status.layouts)?;
    dict.set_item("bytes_sent", status.data.bytes_sent.0)?;
    dict.set_item("bytes_received", status.data.bytes_received.0)?;
    dict.set_item("refused_grant", status.data.refused_grant)?;
    dict.set_item("refused_generation", status.data.refused_generation)?;
    dict.set_item("refused_range", status.data.refused_range)?;
    dict.set_item("refused_connections", status.data.refused_connections)?;
    Ok(dict)
}
