//! Request ids that are used again.

use crate::names::request;
use crate::receiver_driver::{Kind, ReceiverDriver};
use kvbaton_core::receiver::{LoadEnd, LoadError};
use kvbaton_core::wire::Status;

const ONE: &[&[Kind]] = &[&[Kind::Ours]];

#[test]
fn p11_a_request_that_is_loading_is_refused_until_its_load_has_ended() {
    let mut d = ReceiverDriver::new();
    d.load("a");
    d.discover(ONE);
    d.drop_load("a");
    let again = d.spec("a");
    let error = d.accept(again.clone()).unwrap_err();
    assert!(matches!(error, LoadError::AlreadyLoading { .. }), "its blocks are not back yet");
    d.revoke_all();
    d.accept(again).unwrap();
    d.flush();
    d.ok(d.pull_to(0, 0), Status::Finish, &["a"]);
    d.revoke_all();
    assert_eq!(d.ends("a"), [LoadEnd::Dropped, LoadEnd::Loaded]);
}

#[test]
fn p11_a_load_dropped_and_loaded_again_before_the_flush_is_pulled_once_each() {
    let mut d = ReceiverDriver::new();
    d.load("first");
    d.discover(ONE);
    let sent = d.sent.len();
    for _ in 0..2 {
        let spec = d.spec("a");
        d.accept(spec).unwrap();
        d.drop_load("a");
    }
    let spec = d.spec("a");
    d.accept(spec).unwrap();
    d.flush();
    let requests = d.sent[sent..].iter().map(|id| &d.pulls[id].pull.requests[0]);
    let wanted: Vec<bool> = requests.map(|it| !it.groups.is_empty()).collect();
    assert_eq!(wanted, [false, false, true], "two releases, one load, each in a pull of its own");
}

#[test]
fn p11_f07_a_release_does_not_stand_in_the_way_of_a_load_with_its_name() {
    let mut d = ReceiverDriver::new();
    d.release("a");
    d.discover(ONE);
    let release = d.pull_to(0, 0);
    d.load("a");
    let load = d.pull_to(0, 0);
    assert_ne!(release, load);
    d.ok(release, Status::Finish, &["a"]);
    assert!(d.revoking.is_empty(), "the release's answer is not the load's");
    d.ok(load, Status::Finish, &["a"]);
    d.revoke_all();
    assert_eq!(d.ends("a"), [LoadEnd::Loaded]);
}

#[test]
fn p11_f09_a_full_prefix_hit_frees_its_request_id_at_once() {
    let mut d = ReceiverDriver::new();
    let mut hit = d.spec("a");
    hit.blocks.clear();
    d.accept(hit).unwrap();
    let spec = d.spec("a");
    d.accept(spec).unwrap();
    d.drop_load("a");
    assert_eq!(d.ends("a"), [LoadEnd::Loaded, LoadEnd::Dropped]);
    d.flush();
    d.discover(ONE);
    d.wait_until(crate::names::seconds(10_000));
    assert_eq!((d.receiver.loads(), d.receiver.next_deadline()), (0, None));
}

#[test]
fn p11_requests_go_out_in_the_order_in_which_they_came() {
    let mut d = ReceiverDriver::new();
    for name in ["c", "a", "b"] {
        let spec = d.spec(name);
        d.accept(spec).unwrap();
    }
    d.flush();
    d.discover(ONE);
    let pull = &d.pulls[&d.pull_to(0, 0)].pull;
    let names: Vec<_> = pull.requests.iter().map(|it| it.request_id.clone()).collect();
    assert_eq!(names, ["c", "a", "b"].map(request));
}
