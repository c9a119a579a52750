//! The targets of cargo-fuzz, built and run without it.
#![allow(unexpected_cfgs, reason = "cargo-fuzz sets `fuzzing`, nothing here does")]

use kvbaton_fuzz::{CAMPAIGNS, corpus};
use std::path::Path;

macro_rules! targets {
    ($($module:ident $file:literal,)*) => {
        $(
            #[path = $file]
            mod $module;
        )*

        /// By file name.
        const TARGETS: &[(&str, fn(&[u8]))] = &[$((stringify!($module), $module::one_input)),*];
    };
}

targets! {
    sender "../libfuzzer/fuzz_targets/sender.rs",
    receiver "../libfuzzer/fuzz_targets/receiver.rs",
    lifecycle "../libfuzzer/fuzz_targets/lifecycle.rs",
    engine "../libfuzzer/fuzz_targets/engine.rs",
    pair "../libfuzzer/fuzz_targets/pair.rs",
    wire_raw "../libfuzzer/fuzz_targets/wire_raw.rs",
    wire_structured "../libfuzzer/fuzz_targets/wire_structured.rs",
    layout "../libfuzzer/fuzz_targets/layout.rs",
}

#[test]
fn every_campaign_is_a_target_and_takes_its_kept_inputs() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = std::fs::read_to_string(here.join("libfuzzer/Cargo.toml")).unwrap();
    assert_eq!(TARGETS.len(), CAMPAIGNS.len());
    for campaign in &CAMPAIGNS {
        let name = campaign.name.replace('-', "_");
        let (_, target) = TARGETS.iter().find(|(target, _)| *target == name).unwrap();
        assert!(manifest.contains(&format!("fuzz_targets/{name}.rs")), "{name} is not listed");
        for entry in corpus::entries(&here.join("corpus"), campaign).unwrap() {
            target(&entry.input);
        }
        target(&[]);
    }
}
