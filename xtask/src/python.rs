//! The Python package: built, tested alone, and tested inside vLLM.

use crate::report::Outcome;
use crate::{run, workspace};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What `cargo xtask test-vllm` runs.
#[derive(Args)]
pub struct Options {
    /// Arguments of pytest: files, `-k EXPRESSION`, `-x`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Builds the package into the tests' environment and runs its tests there.
///
/// # Errors
/// When a program cannot be started.
pub fn test() -> Result<Outcome> {
    let mut build = maturin("develop");
    build.env("VIRTUAL_ENV", workspace::venv());
    let built = run::capture(build)?;
    if !built.success {
        println!("{}", built.output.trim_end());
        return Ok(Outcome::Failed);
    }
    let mut pytest = pytest(&workspace::venv_python());
    pytest.args(["-c", "python/pyproject.toml", "--rootdir", "python", "python/tests"]);
    let finished = run::capture(pytest)?;
    let outcome = Outcome::of_pytest(&finished.output, finished.success);
    if outcome.failed() {
        println!("{}", finished.output.trim_end());
    }
    Ok(outcome)
}

/// Why the tests inside vLLM cannot run here, if they cannot.
pub fn vllm_missing() -> Option<String> {
    let there = workspace::vllm().join("v33/bin/vllm").exists();
    (!there).then(|| "vLLM is not installed; `cargo xtask setup --vllm` installs it".into())
}

/// Builds the package, installs it beside vLLM and runs the tests inside it.
///
/// # Errors
/// When vLLM is not installed, or the package does not build.
pub fn test_vllm(options: &Options) -> Result<bool> {
    if let Some(missing) = vllm_missing() {
        bail!("{missing}");
    }
    println!("building the package and installing it beside vLLM");
    let wheels = workspace::root().join("target/wheels/vllm-tests");
    if wheels.exists() {
        std::fs::remove_dir_all(&wheels).with_context(|| format!("{}", wheels.display()))?;
    }
    let mut build = maturin("build");
    build.arg("--release").arg("--out").arg(&wheels);
    run::must(build)?;
    let venv = workspace::vllm().join("v32");
    let mut install = run::command(venv.join("bin/uv"));
    install.args(["pip", "install", "--quiet", "--reinstall", "--no-deps", "--python"]);
    install.arg(venv.join("bin/python")).arg(only_wheel(&wheels)?);
    run::must(install)?;
    let mut pytest = pytest(&workspace::venv_python());
    pytest.current_dir(workspace::python().join("vllm_tests"));
    pytest.env("KVBATON_VLLM", workspace::vllm());
    pytest.args(["-v", "--tb=short"]).args(&options.arguments);
    let status = pytest.status().context("cannot start pytest; run `cargo xtask setup`")?;
    Ok(status.success())
}

fn only_wheel(folder: &Path) -> Result<PathBuf> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("{}", folder.display()))?;
    let wheel = entries.filter_map(Result::ok).map(|it| it.path()).next();
    wheel.with_context(|| format!("maturin left no wheel in {}", folder.display()))
}

fn maturin(command: &str) -> Command {
    let mut maturin = run::command(workspace::venv().join("bin/maturin"));
    maturin.args([command, "--quiet", "--locked", "--manifest-path", "python/Cargo.toml"]);
    maturin
}

/// Without caches in the working tree, and without plugins of the surroundings.
fn pytest(python: &Path) -> Command {
    let mut pytest = run::command(python);
    pytest.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]);
    pytest.env("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1").env("PYTHONDONTWRITEBYTECODE", "1");
    pytest
}
