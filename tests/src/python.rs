//! Peers that are Python scripts of `tests/peers`.

use crate::peer::Peer;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Starts a script with the interpreter that `cargo xtask setup` prepared, or the one that
/// `KVBATON_PYTHON` names.
///
/// # Panics
/// Without an interpreter: an interop test without its peer has not passed.
#[must_use]
pub fn script(name: &str, arguments: &[&str]) -> (Peer, Value) {
    let mut command = Command::new(interpreter());
    command.arg(peers().join(name)).args(arguments);
    Peer::start(name, command)
}

/// As [`script`], with environment variables.
///
/// # Panics
/// As there.
#[must_use]
pub fn script_with(name: &str, arguments: &[&str], variables: &[(&str, &str)]) -> (Peer, Value) {
    let mut command = Command::new(interpreter());
    command.arg(peers().join(name)).args(arguments).envs(variables.iter().copied());
    Peer::start(name, command)
}

fn interpreter() -> PathBuf {
    if let Some(named) = std::env::var_os("KVBATON_PYTHON") {
        return named.into();
    }
    let prepared = tests().parent().expect("a workspace member").join(".venv/bin/python");
    assert!(
        prepared.exists(),
        "the interop tests' peers are not installed ({} is missing); run `cargo xtask setup`",
        prepared.display()
    );
    prepared
}

fn tests() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn peers() -> PathBuf {
    tests().join("peers")
}
