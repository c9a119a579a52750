//! Where things lie in the workspace.

use std::path::PathBuf;

/// The workspace's root folder.
pub fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask is a folder of the workspace").to_path_buf()
}

/// The Python environment that `cargo xtask setup` makes.
pub fn venv() -> PathBuf {
    root().join(".venv")
}

/// The environment's interpreter.
pub fn venv_python() -> PathBuf {
    venv().join("bin/python")
}

/// Scripts of the peers, and the lists of what they need.
pub fn peers() -> PathBuf {
    root().join("tests/peers")
}

/// The Python package.
pub fn python() -> PathBuf {
    root().join("python")
}

/// Where `cargo xtask setup --vllm` puts vLLM.
pub fn vllm() -> PathBuf {
    root().join(".vllm")
}

/// Where tools are installed that are no dependency of the workspace.
pub fn tools() -> PathBuf {
    root().join("target/tools")
}
