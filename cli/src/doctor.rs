//! `kvbaton doctor`: what is wrong with RDMA here, and how to mend it.

use clap::Args;
use futures_executor::block_on;
use kvbaton_core::ids::SessionAddress;
use kvbaton_transport_rdma::doctor::{Finding, Severity, examine};
use kvbaton_transport_rdma::verbs::Verbs;
use kvbaton_transport_rdma::{DeviceChoice, RdmaConfig};
use serde_json::json;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

/// Look at RDMA on this machine, and say in plain words what is wrong and how to mend it.
///
/// Looks at rdma-core, the limit on pinned memory, devices, ports, addresses and MTU, tries a
/// write over each device, and asks peers whether they would connect. Exits with 0 when RDMA
/// works, with 1 when something is wrong. Hints alone are fine. TCP needs none of it.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Look at this device only; may be given several times.
    #[arg(long, value_name = "NAME")]
    device: Vec<String>,
    /// Ask this node, too: HOST:PORT of its data plane (`session`); may be given several times.
    #[arg(long, value_name = "HOST:PORT")]
    peer: Vec<Peer>,
    /// Print the findings as one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone)]
struct Peer(SessionAddress);

impl FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no HOST:PORT");
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().map_err(|_| wrong())?;
        Ok(Self(SessionAddress { host: host.trim_matches(['[', ']']).into(), port }))
    }
}

/// Runs the command.
#[must_use]
pub fn run(args: &DoctorArgs) -> ExitCode {
    crate::log::to_stderr();
    let config = RdmaConfig {
        devices: args.device.iter().map(DeviceChoice::named).collect(),
        // Nobody is in a hurry here.
        connect_timeout: Duration::from_secs(5),
        ..RdmaConfig::default()
    };
    let peers: Vec<SessionAddress> = args.peer.iter().map(|peer| peer.0.clone()).collect();
    let findings = examine(Verbs::system(), &config, &peers, &|future| block_on(future));
    if args.json {
        println!("{}", as_json(&findings));
    } else {
        for finding in &findings {
            println!("{}  {}", word(finding.severity), finding.text);
        }
    }
    let works = findings.iter().all(|finding| finding.severity < Severity::Wrong);
    if works { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

const fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Fine => "fine ",
        Severity::Hint => "hint ",
        Severity::Wrong => "WRONG",
    }
}

fn as_json(findings: &[Finding]) -> serde_json::Value {
    let one = |finding: &Finding| json!({ "severity": word(finding.severity).trim().to_lowercase(), "text": finding.text });
    let works = findings.iter().all(|finding| finding.severity < Severity::Wrong);
    json!({ "works": works, "findings": findings.iter().map(one).collect::<Vec<_>>() })
}
