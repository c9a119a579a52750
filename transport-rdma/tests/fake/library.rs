//! Opening a library at run time.

use kvbaton_transport_rdma::verbs::{Context, Verbs, devices};
use std::ffi::CString;

/// The fake as a shared library, where cargo put it beside this test.
fn shared_library() -> Option<CString> {
    let test = std::env::current_exe().expect("this test");
    let library = test.parent()?.parent()?.join("libkvbaton_fake_verbs.so");
    let beside = test.parent()?.join("libkvbaton_fake_verbs.so");
    let found = [library, beside].into_iter().find(|it| it.exists())?;
    CString::new(found.to_str()?).ok()
}

#[test]
fn a_library_in_place_of_libibverbs_is_opened_by_name() {
    let path = shared_library().expect("cargo builds the fake as a shared library too");
    // SAFETY: the fake has rdma-core's functions, with their types.
    let verbs = unsafe { Verbs::open(&path) }.expect("opens");
    assert_eq!(devices(&verbs).expect("lists"), ["fake0"]);
    let context = Context::open(&verbs, "fake0").expect("opens");
    let port = context.port(1).expect("has one");
    assert!(port.active && port.ethernet);
    assert_eq!(context.choose_gid(&port, None).expect("has one").index, 1);
    let error = Context::open(&verbs, "mlx5_0").expect_err("is not there").to_string();
    assert!(error.contains("mlx5_0") && error.contains("fake0"), "{error}");
}

#[test]
fn a_machine_without_rdma_core_is_told_what_to_install() {
    // SAFETY: there is no such library.
    let error = unsafe { Verbs::open(c"libibverbs-of-nobody.so.1") }.expect_err("is not there");
    let text = error.to_string();
    assert!(text.contains("RDMA is not available") && text.contains("libibverbs1"), "{text}");
    // SAFETY: it finds nothing.
    let error = unsafe { Verbs::from_symbols(&|_| None) }.expect_err("lacks all");
    assert!(error.to_string().contains("ibv_get_device_list"), "{error}");
}
