//! `cargo xtask setup`: the peers of the interop tests and benches.

use crate::{run, workspace};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What to install.
#[derive(Args, Default)]
pub struct Options {
    /// Also what `kvbaton bench` compares with: NIXL, and vLLM's connector unpacked from its
    /// wheel (a download of about 400 MB).
    #[arg(long)]
    bench_peers: bool,
    /// Also real vLLM 0.32 and 0.33 on the CPU with a tiny model, in `.vllm`: what
    /// `cargo xtask test-vllm` runs (about 4 GB, a few minutes; needs Python 3.11 and unzip).
    #[arg(long)]
    vllm: bool,
}

/// The release whose connector is the reference.
const VLLM: &str = "vllm==0.33.0";
/// The part of it that the reference bench compiles.
const VLLM_CONNECTOR: &str = "vllm/distributed/kv_transfer/kv_connector/v1/mooncake/";
const PEER_IMPORTS: &str = "import mooncake.engine, msgpack, zmq";
const BENCH_IMPORTS: &str = "import msgspec, numpy, nixl_cu12._api";
/// Which Debian package holds a library that a wheel may miss.
const LIBRARIES: [(&str, &str); 4] = [
    ("libibverbs.so.1", "libibverbs1"),
    ("libnuma.so.1", "libnuma1"),
    ("libcurl.so.4", "libcurl4"),
    ("libstdc++.so.6", "libstdc++6"),
];

/// Installs what is missing.
///
/// # Errors
/// When something cannot be installed, with what to do about it.
pub fn setup(options: &Options) -> Result<()> {
    environment()?;
    let peers = workspace::peers();
    install(&peers.join("requirements.txt"), "peers", &[])?;
    import(PEER_IMPORTS)?;
    install(&workspace::python().join("requirements.txt"), "python", &[])?;
    if options.bench_peers {
        // NIXL's wheel names torch, which writing from addresses does not need.
        install(&peers.join("requirements-bench.txt"), "bench", &["--no-deps"])?;
        import(BENCH_IMPORTS)?;
        let folder = connector()?;
        println!("  vLLM's connector is in {}", folder.display());
    }
    println!("  peers are ready: {}", workspace::venv_python().display());
    if options.vllm {
        println!("  setting up vLLM in .vllm (downloads about 1 GB at first)");
        let mut setup = run::command("bash");
        setup.arg(workspace::python().join("vllm_tests/setup.sh")).arg(workspace::vllm());
        run::must(setup).context("vLLM's packages; is a package index reachable?")?;
        println!("  vLLM is ready: {}", workspace::vllm().display());
    }
    Ok(())
}

/// The Python environment, made anew when its interpreter does not run (it was moved, or the
/// system's Python was replaced).
fn environment() -> Result<()> {
    let mut version = run::command(workspace::venv_python());
    version.args(["-m", "pip", "--version"]);
    if run::capture(version).is_ok_and(|it| it.success) {
        return Ok(());
    }
    println!("  making a Python environment in .venv");
    let mut make = run::command("python3");
    make.args(["-m", "venv", "--clear"]).arg(workspace::venv());
    run::must(make).context(
        "no Python environment; install Python 3.11 with its venv module \
         (Debian: apt-get install python3-venv)",
    )?;
    Ok(())
}

/// Installs a list of pinned packages, unless exactly this list was installed already.
fn install(path: &Path, name: &str, flags: &[&str]) -> Result<()> {
    let wanted = fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
    let stamp = workspace::venv().join(format!("{name}-installed.txt"));
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    println!("  installing {} into .venv", path.display());
    let mut pip = pip("install");
    pip.args(flags).arg("-r").arg(path);
    run::must(pip).context("the peers' packages; is a package index reachable?")?;
    fs::write(&stamp, wanted).with_context(|| format!("{}", stamp.display()))
}

fn pip(command: &str) -> Command {
    let mut pip = run::command(workspace::venv_python());
    pip.args(["-m", "pip", "--disable-pip-version-check", "--no-input", command, "--quiet"]);
    pip
}

/// Imports modules; installs the system libraries that they turn out to miss.
fn import(modules: &str) -> Result<()> {
    for _ in 0..=LIBRARIES.len() {
        let mut python = run::command(workspace::venv_python());
        python.args(["-c", modules]);
        let finished = run::capture(python)?;
        if finished.success {
            return Ok(());
        }
        let missing = LIBRARIES.iter().find(|(library, _)| {
            finished.output.contains(&format!("{library}: cannot open shared object file"))
        });
        let Some((library, package)) = missing else {
            bail!("the peers do not work:\n{}", finished.output.trim_end());
        };
        system_package(library, package)?;
    }
    bail!("the peers still miss system libraries after installing them")
}

fn system_package(library: &str, package: &str) -> Result<()> {
    let by_hand = format!("{library} is missing; run: apt-get install {package}");
    if !may_install() {
        bail!("{by_hand} (Debian, as root)");
    }
    println!("  installing Debian's {package} for {library}");
    let install = || {
        let mut apt = apt();
        apt.args(["install", "--yes", "--no-install-recommends", package]);
        run::must(apt)
    };
    // Without package lists, or with old ones, the first try fails.
    if install().is_err() {
        let mut update = apt();
        update.arg("update");
        run::must(update).with_context(|| by_hand.clone())?;
        install().with_context(|| by_hand.clone())?;
    }
    Ok(())
}

fn apt() -> Command {
    let mut apt = run::command("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive").arg("--quiet");
    apt
}

/// Whether this is root on a machine with apt-get.
fn may_install() -> bool {
    let mut id = run::command("id");
    id.arg("-u");
    let root = run::capture(id).is_ok_and(|it| it.output.trim() == "0");
    root && Path::new("/usr/bin/apt-get").exists()
}

/// vLLM's connector, unpacked where `kvbaton bench` looks for it.
fn connector() -> Result<PathBuf> {
    let folder = workspace::venv().join("vllm-src");
    if folder.join(VLLM_CONNECTOR).is_dir() {
        return Ok(folder);
    }
    println!("  downloading {VLLM} and unpacking its Mooncake connector");
    let wheel = folder.join("wheel");
    fs::create_dir_all(&wheel).with_context(|| format!("{}", wheel.display()))?;
    let mut download = pip("download");
    download.args(["--no-deps", "--only-binary", ":all:", "--dest"]).arg(&wheel).arg(VLLM);
    run::must(download).context("vLLM's wheel; is a package index reachable?")?;
    let mut unpack = run::command(workspace::venv_python());
    unpack.args(["-c", UNPACK, VLLM_CONNECTOR]).arg(&wheel).arg(&folder);
    run::must(unpack)?;
    fs::remove_dir_all(&wheel).with_context(|| format!("{}", wheel.display()))?;
    Ok(folder)
}

const UNPACK: &str = "\
import glob, sys, zipfile
prefix, wheel, folder = sys.argv[1:]
archive = zipfile.ZipFile(glob.glob(wheel + '/*.whl')[0])
archive.extractall(folder, [name for name in archive.namelist() if name.startswith(prefix)])
";
