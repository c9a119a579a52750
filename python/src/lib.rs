//! `kvbaton._kvbaton`: kvbaton's node for Python.

mod aio;
mod blocks;
mod bootstrap;
mod errors;
mod event;
mod memory;
mod node;
mod settings;
mod status;
mod vllm;

use pyo3::prelude::*;

/// Shows log lines on stderr: warnings, or what RUST_LOG asks for. The first call wins.
#[pyfunction]
fn log_to_stderr() {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    let to_stderr = tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(filter);
    let _ = to_stderr.with_ansi(false).try_init();
}

/// The extension module.
#[pymodule]
fn _kvbaton(module: &Bound<'_, PyModule>) -> PyResult<()> {
    errors::register(module)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(log_to_stderr, module)?)?;
    module.add_class::<node::Node>()?;
    module.add_class::<node::Load>()?;
    module.add_class::<aio::AsyncNode>()?;
    module.add_class::<memory::Tensor>()?;
    module.add_class::<memory::Group>()?;
    module.add_class::<event::SendEnded>()?;
    module.add_class::<event::LoadEnded>()?;
    module.add_class::<bootstrap::BootstrapServer>()?;
    module.add_class::<vllm::ConnectorSettings>()?;
    module.add_class::<vllm::SchedulerSide>()?;
    module.add_class::<vllm::WorkerSide>()
}
