//! Pulls that real vLLM decode workers sent, pointed at other memory.

use kvbaton_core::ids::SessionAddress;
use kvbaton_core::wire::{Limits, Pull, ToPrefill};
use std::path::Path;

/// Reads one of `core/tests/vectors/captured`.
///
/// # Panics
/// When there is none of this name, or our codec does not read and write it byte for byte.
#[must_use]
pub fn pull(name: &str) -> Pull {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/tests/vectors/captured");
    let path = folder.join(format!("{name}.bin"));
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let message = ToPrefill::decode(&bytes, &Limits::default()).expect("a captured pull");
    let ToPrefill::Pull(pull) = message else { panic!("{name} is no pull: {message:?}") };
    assert_eq!(stock_bytes(&pull), bytes, "{name} is written as it was read");
    pull
}

/// A pull as a stock D writes it.
#[must_use]
pub fn stock_bytes(pull: &Pull) -> Vec<u8> {
    let mut bytes = Vec::new();
    pull.encode_stock(&mut bytes);
    bytes
}

/// Points a pull at another process's memory: its session, and its regions one after the
/// other from `address`, each with room for `blocks` blocks. All else stays as captured.
///
/// # Panics
/// When a region does not fit.
#[must_use]
pub fn pointed_at(mut pull: Pull, session: &SessionAddress, address: u64, blocks: u64) -> Pull {
    pull.session = session.clone();
    if let Some(layout) = &mut pull.layout {
        let mut base = address;
        for (at, stride) in layout.base_addrs.iter_mut().zip(&layout.block_lens) {
            *at = base;
            base += stride * blocks;
        }
    }
    pull
}
