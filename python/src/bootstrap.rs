//! The bootstrap server, where prefill ranks announce themselves.

use crate::errors;
use kvbaton_transport_tcp::bootstrap::{BootstrapConfig, BootstrapServer as Inner};
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};

/// A bootstrap server on a thread of its own; closing it, or leaving it as a context
/// manager, stops it.
#[pyclass(frozen, module = "kvbaton")]
pub struct BootstrapServer {
    server: Mutex<Option<Inner>>,
    /// Its URL (`http://host:port`), by the address it is bound to.
    #[pyo3(get)]
    url: String,
    /// The port it listens on.
    #[pyo3(get)]
    port: u16,
}

#[pymethods]
impl BootstrapServer {
    #[new]
    #[pyo3(signature = (host = "127.0.0.1", port = 0))]
    pub fn new(py: Python<'_>, host: &str, port: u16) -> PyResult<Self> {
        let config = BootstrapConfig { host: host.into(), port, ..Default::default() };
        let server = py.detach(|| Inner::start(config)).map_err(errors::transport)?;
        let (url, port) = (server.url(), server.address().port());
        Ok(Self { server: Mutex::new(Some(server)), url, port })
    }

    /// Stops the server. Idempotent.
    pub fn close(&self, py: Python<'_>) {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(move || drop(server));
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_how))]
    fn __exit__(&self, py: Python<'_>, _how: &Bound<'_, PyAny>) {
        self.close(py);
    }
}
