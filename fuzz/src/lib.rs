//! Campaigns: core's machines, wire and layouts under choices of any kind, next to
//! reference models that say what must hold.
//!
//! A run is a function of its bytes ([`Choices`]). The same function is a property test
//! with shrinking (`tests/`), a target of cargo-fuzz (`libfuzzer/`) and a campaign of the
//! command `kvbaton-fuzz`.
#![forbid(unsafe_code)]

mod campaign;
mod choices;
pub mod corpus;
mod engine;
mod layout;
mod lifecycle;
mod names;
mod pair;
mod quiet;
mod receiver;
pub mod runner;
mod sender;
mod shrink;

mod wire;

pub use campaign::{Campaign, Check, Story, Trace, Violation};
pub use choices::Choices;
pub use shrink::shrink;

/// All campaigns, in the order in which they run.
pub const CAMPAIGNS: [Campaign; 8] = [
    sender::CAMPAIGN,
    receiver::CAMPAIGN,
    lifecycle::CAMPAIGN,
    engine::CAMPAIGN,
    pair::CAMPAIGN,
    wire::RAW,
    wire::STRUCTURED,
    layout::CAMPAIGN,
];

/// The campaign of that name.
#[must_use]
pub fn campaign(name: &str) -> Option<&'static Campaign> {
    static ALL: [Campaign; CAMPAIGNS.len()] = CAMPAIGNS;
    ALL.iter().find(|campaign| campaign.name == name)
}

/// A campaign's run as a target of a fuzzer.
///
/// # Panics
/// When a rule is broken, with the steps in words; and when no campaign has that name.
pub fn one_input(name: &str, bytes: &[u8]) {
    let Some(campaign) = campaign(name) else { panic!("no campaign {name}") };
    if let Some(story) = campaign.explain_failure(bytes) {
        panic!("{story}");
    }
}
