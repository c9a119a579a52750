//! Target of the campaign `engine`.
#![cfg_attr(fuzzing, no_main)]

/// One input; panics when a rule is broken.
pub fn one_input(bytes: &[u8]) {
    kvbaton_fuzz::one_input("engine", bytes);
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| one_input(bytes));

#[cfg(not(fuzzing))]
#[allow(dead_code, reason = "cargo-fuzz makes the main function; this one lets it build without")]
fn main() {}
