//! Runs against a real device: what `cargo xtask test-rdma` starts inside its machines.
//!
//!     soft_roce rules DEVICE              the contract of a data plane, one process
//!     soft_roce target DEVICE HOST PORT   the receiving process of scenarios
//!     soft_roce sender DEVICE HOST TARGET PORT SCENARIO...
//!
//! Exit code 0: all fine; 1: something is not; 2: wrong use.

mod scenarios;
mod target;

use kvbaton_actors::transport::DataPlane;
use kvbaton_data_conformance::{Options, Planes, RULES};
use kvbaton_transport_rdma::{DeviceChoice, RdmaConfig, RdmaDataPlane};
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of a large write: an emulated machine moves some 100 MB a second.
const LARGE: u64 = 4 << 20;

fn config(device: &str, host: &str) -> RdmaConfig {
    RdmaConfig {
        devices: vec![DeviceChoice::named(device)],
        bind_host: host.into(),
        // Emulated processors may stand still for a while.
        dead_after: Duration::from_secs(2),
        connect_timeout: Duration::from_secs(3),
        grace: Duration::from_millis(200),
        spin: Duration::from_millis(1),
        ..RdmaConfig::default()
    }
}

struct Device(String);

impl Planes for Device {
    fn open(&self, options: Options) -> Arc<dyn DataPlane> {
        let mut config = config(&self.0, "127.0.0.1");
        config.port = options.port;
        config.cluster_key = options.key;
        if options.deny_all {
            config.check_address = Arc::new(|_| false);
        }
        RdmaDataPlane::open(config).expect("opens")
    }

    fn large(&self) -> u64 {
        LARGE
    }
}

fn rules(device: &str) -> bool {
    let planes = Device(device.into());
    let mut fine = true;
    for (name, rule) in RULES {
        let begin = Instant::now();
        let passed = std::panic::catch_unwind(AssertUnwindSafe(|| rule(&planes))).is_ok();
        fine &= passed;
        let verdict = if passed { "ok" } else { "FAILED" };
        println!("rule {name}: {verdict} ({} ms)", begin.elapsed().as_millis());
    }
    fine
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let fine = match arguments[..] {
        ["rules", device] => rules(device),
        ["target", device, host, port] => target::run(config(device, host), port),
        ["sender", device, host, target, port, ref scenarios @ ..] => {
            scenarios::run(config(device, host), (target, port), scenarios)
        }
        _ => {
            eprintln!(
                "soft_roce rules DEVICE | target DEVICE HOST PORT | sender DEVICE HOST TARGET PORT SCENARIO..."
            );
            return ExitCode::from(2);
        }
    };
    if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
