//! Exceptions. Each message says what happened, to whom, and what to do next.

use kvbaton_actors::lifecycle_manager::RegistrationError;
use kvbaton_actors::node::NodeError;
use kvbaton_actors::prefill_sender::HoldError as Held;
use kvbaton_actors::transport::TransportError as Transport;
use kvbaton_core::layout::LayoutError as Layout;
use kvbaton_core::receiver::LoadError as Loading;
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(kvbaton, KvBatonError, PyException, "Base of every error of kvbaton.");
create_exception!(kvbaton, ConfigError, KvBatonError, "A setting is unknown or cannot be.");
create_exception!(kvbaton, LayoutError, KvBatonError, "Tensors that contradict themselves.");
create_exception!(kvbaton, TransportError, KvBatonError, "A socket, peer or server failed.");
create_exception!(
    kvbaton,
    RegistrationFailed,
    KvBatonError,
    "Memory could not be registered, unregistered or restored."
);
create_exception!(
    kvbaton,
    MemoryInUse,
    RegistrationFailed,
    "Transfers still used the memory when the drain ended; the node stays registered."
);
create_exception!(
    kvbaton,
    HoldRefused,
    KvBatonError,
    "A request could not be held: its blocks stay with the caller."
);
create_exception!(kvbaton, LoadRefused, KvBatonError, "A load could not be started.");
create_exception!(kvbaton, Stopped, KvBatonError, "The node was closed.");

/// Adds the classes to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("KvBatonError", py.get_type::<KvBatonError>())?;
    module.add("ConfigError", py.get_type::<ConfigError>())?;
    module.add("LayoutError", py.get_type::<LayoutError>())?;
    module.add("TransportError", py.get_type::<TransportError>())?;
    module.add("RegistrationFailed", py.get_type::<RegistrationFailed>())?;
    module.add("MemoryInUse", py.get_type::<MemoryInUse>())?;
    module.add("HoldRefused", py.get_type::<HoldRefused>())?;
    module.add("LoadRefused", py.get_type::<LoadRefused>())?;
    module.add("Stopped", py.get_type::<Stopped>())
}

pub fn stopped() -> PyErr {
    Stopped::new_err("the node was closed; make a new one")
}

pub fn registration(error: RegistrationError) -> PyErr {
    match error {
        RegistrationError::InUse { .. } => MemoryInUse::new_err(error.to_string()),
        RegistrationError::Transport(error) => transport(error),
        other => RegistrationFailed::new_err(other.to_string()),
    }
}

pub fn transport(error: Transport) -> PyErr {
    TransportError::new_err(error.to_string())
}

pub fn node(error: NodeError) -> PyErr {
    match error {
        NodeError::Config(what) => ConfigError::new_err(what),
        NodeError::Transport(error) => transport(error),
        other => KvBatonError::new_err(other.to_string()),
    }
}

pub fn hold(error: Held) -> PyErr {
    HoldRefused::new_err(error.to_string())
}

pub fn load(error: &Loading) -> PyErr {
    LoadRefused::new_err(error.to_string())
}

pub fn layout(error: Layout) -> PyErr {
    LayoutError::new_err(error.to_string())
}
