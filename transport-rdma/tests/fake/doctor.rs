//! What the doctor says.

use crate::rig::{Side, config, verbs};
use kvbaton_data_conformance::block_on;
use kvbaton_fake_verbs::{Fabric, NewDevice};
use kvbaton_transport_rdma::RdmaConfig;
use kvbaton_transport_rdma::doctor::{Finding, Severity, examine};
use kvbaton_transport_rdma::verbs::Verbs;

/// Without what is said of this process's limit on pinned memory.
fn look(config: &RdmaConfig, peers: &[kvbaton_core::ids::SessionAddress]) -> Vec<Finding> {
    let mut findings = examine(Ok(verbs()), config, peers, &|future| block_on(future));
    findings.retain(|it| !it.text.contains("may be pinned"));
    findings
}

fn wrongs(findings: &[Finding]) -> Vec<&str> {
    let wrong = findings.iter().filter(|it| it.severity == Severity::Wrong);
    wrong.map(|it| it.text.as_str()).collect()
}

#[test]
fn a_device_that_works_is_told_with_its_address_and_a_trial_write() {
    let fabric = Fabric::new(1);
    let findings = look(&config(&fabric), &[]);
    assert_eq!(wrongs(&findings), Vec::<&str>::new());
    assert!(findings.iter().any(|it| it.text.contains("address 10.66.")), "{findings:?}");
    assert!(findings.iter().any(|it| it.text.contains("trial write arrived")), "{findings:?}");
    let mtu = findings.iter().find(|it| it.severity == Severity::Hint).expect("a hint");
    assert!(mtu.text.contains("1024") && mtu.text.contains("4200"), "{mtu:?}");
    assert_eq!(fabric.device(0).live(), Default::default());
}

#[test]
fn each_thing_that_is_wrong_is_told_with_its_remedy() {
    let fabric = Fabric::new(1);
    fabric.device(0).set_port(false);
    let findings = look(&config(&fabric), &[]);
    assert!(wrongs(&findings)[0].contains("is down; bring its link up"), "{findings:?}");
    fabric.device(0).set_port(true);
    fabric.device(0).fail_call("ibv_open_device", 0, libc::EACCES);
    let findings = look(&config(&fabric), &[]);
    assert!(wrongs(&findings)[0].contains("/dev/infiniband"), "{findings:?}");
    // The first region is the scratch memory of a rail.
    fabric.device(0).fail_call("ibv_reg_mr", 1, libc::ENOMEM);
    let findings = look(&config(&fabric), &[]);
    assert!(wrongs(&findings)[0].contains("memlock"), "{findings:?}");
    // SAFETY: there is no such library.
    let missing = unsafe { Verbs::open(c"libibverbs-of-nobody.so.1") };
    let findings = examine(missing, &config(&fabric), &[], &|future| block_on(future));
    assert!(wrongs(&findings)[0].contains("install rdma-core"), "{findings:?}");
}

#[test]
fn peers_are_asked() {
    let peer = Side::with(vec![NewDevice::default()], 4096, 0, |_| {});
    let fabric = Fabric::new(1);
    let session = peer.node.plane.session();
    let findings = look(&config(&fabric), std::slice::from_ref(&session));
    assert_eq!(wrongs(&findings), Vec::<&str>::new());
    let locked = Side::with(vec![NewDevice::default()], 4096, 0, |config| {
        config.cluster_key = Some([1; 32]);
    });
    let findings = look(&config(&fabric), &[locked.node.plane.session()]);
    assert!(wrongs(&findings)[0].contains("cluster key"), "{findings:?}");
    drop(peer);
    let findings = look(&config(&fabric), &[session]);
    assert!(wrongs(&findings)[0].contains("cannot reach"), "{findings:?}");
}
