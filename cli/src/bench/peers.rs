//! The peers: Python programs around other engines, run as they are.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Who is measured beside us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    /// Mooncake's transfer engine over TCP.
    Mooncake,
    /// NIXL with UCX over TCP.
    Nixl,
    /// vLLM's planner in Python.
    Reference,
}

impl Peer {
    fn script(self) -> &'static str {
        match self {
            Self::Mooncake => "bench_mooncake.py",
            Self::Nixl => "bench_nixl.py",
            Self::Reference => "bench_reference.py",
        }
    }
}

/// Runs a peer's program and returns the JSON object that it prints last.
pub(super) fn run(peer: Peer) -> Result<Value> {
    let root = workspace();
    let python = python(&root)?;
    let script = root.join("tests/peers").join(peer.script());
    let mut command = Command::new(&python);
    command.arg(&script).stdin(Stdio::null()).stderr(Stdio::piped());
    match peer {
        Peer::Reference => {
            let source = std::env::var_os("VLLM_SRC")
                .map_or_else(|| root.join(".venv/vllm-src"), PathBuf::from);
            command.env("VLLM_SRC", source).arg(root.join("core/tests/vectors/wire.json"));
        }
        Peer::Nixl => {
            command.env("UCX_TLS", "tcp");
        }
        Peer::Mooncake => {}
    }
    let bar = super::progress::bar(1);
    bar.set_message(format!("running {}", peer.script()));
    let output = command.output().with_context(|| format!("cannot run {}", python.display()))?;
    bar.finish_and_clear();
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().last().unwrap_or("it said nothing").to_owned();
        bail!(
            "{} failed ({}): {last}; `cargo xtask setup --bench-peers` installs peers",
            peer.script(),
            output.status
        );
    }
    let parsed = text.lines().rev().find_map(|line| serde_json::from_str(line).ok());
    parsed
        .or_else(|| serde_json::from_str(&text).ok())
        .with_context(|| format!("{} printed no JSON object", peer.script()))
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn python(root: &Path) -> Result<PathBuf> {
    if let Some(python) = std::env::var_os("KVBATON_PYTHON") {
        return Ok(python.into());
    }
    let python = root.join(".venv/bin/python");
    if !python.exists() {
        bail!("no Python with peers; run `cargo xtask setup --bench-peers` or set KVBATON_PYTHON");
    }
    Ok(python)
}
