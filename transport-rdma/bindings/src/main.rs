//! Writes the Rust form of `infiniband/verbs.h` to the file named on the command line.
//!
//! Only types and constants: functions are looked up by name at run time (`table.rs`), so
//! that a program built with them starts where rdma-core is not installed.
//!
//!     apt-get install libibverbs-dev libclang-dev
//!     cargo run --manifest-path transport-rdma/bindings/Cargo.toml -- \
//!         transport-rdma/src/verbs/bindings.rs

const TYPES: &str = "ibv_(context|context_ops|device|pd|mr|cq|qp|qp_attr|qp_init_attr|qp_cap|\
    ah_attr|global_route|gid|gid_entry|send_wr|recv_wr|sge|wc|port_attr|device_attr|async_event|\
    comp_channel|access_flags|qp_attr_mask|send_flags|wc_status|wc_opcode|wr_opcode|qp_type|\
    qp_state|gid_type|event_type|mtu|port_state)";

fn main() {
    let Some(output) = std::env::args().nth(1) else {
        eprintln!("name the file to write");
        std::process::exit(2);
    };
    bindgen::Builder::default()
        .header_contents("verbs_only.h", "#include <infiniband/verbs.h>\n")
        .allowlist_type(TYPES)
        .allowlist_var("IBV_LINK_LAYER_.*")
        .blocklist_type("pthread_.*")
        .raw_line("use libc::{pthread_cond_t, pthread_mutex_t};")
        .prepend_enum_name(false)
        .default_enum_style(bindgen::EnumVariation::Consts)
        // The sizes of pthread's types differ between architectures.
        .layout_tests(false)
        .generate_comments(false)
        .raw_line(
            "// Made by transport-rdma/bindings from rdma-core's infiniband/verbs.h; do not edit.",
        )
        .generate()
        .expect("libclang and infiniband/verbs.h are installed")
        .write_to_file(&output)
        .expect("the file can be written");
}
