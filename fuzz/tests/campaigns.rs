//! Every campaign as a property test, and its kept inputs.

use kvbaton_fuzz::{Campaign, Trace, campaign, corpus};
use proptest::collection::vec;
use proptest::prelude::*;
use std::path::Path;

fn by_name(name: &str) -> &'static Campaign {
    campaign(name).unwrap_or_else(|| panic!("no campaign {name}"))
}

fn holds(name: &str, input: &[u8]) -> Result<(), TestCaseError> {
    let campaign = by_name(name);
    match campaign.attempt(input, &mut Trace::default()) {
        Ok(()) => Ok(()),
        Err(violation) => {
            let story = campaign.explain(input).map_or(violation.to_string(), |it| it.to_string());
            Err(TestCaseError::fail(story))
        }
    }
}

/// A thousand runs; `PROPTEST_CASES` asks for more.
fn cases() -> ProptestConfig {
    let usual = ProptestConfig::default();
    let cases = usual.cases.max(1_000);
    ProptestConfig { cases, failure_persistence: None, ..usual }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn p01_p13_a_sender_does_what_its_model_asks_for(input in vec(any::<u8>(), 0..1_200)) {
        holds("sender", &input)?;
    }

    #[test]
    fn l04_l10_p08_p10_a_receiver_does_what_its_book_asks_for(
        input in vec(any::<u8>(), 0..1_200),
    ) {
        holds("receiver", &input)?;
    }

    #[test]
    fn s01_s02_s05_a_registration_ends_only_after_its_drain(input in vec(any::<u8>(), 0..400)) {
        holds("lifecycle", &input)?;
    }

    #[test]
    fn p08_g02_l05_both_sides_over_a_lossy_network(input in vec(any::<u8>(), 0..1_600)) {
        holds("pair", &input)?;
    }

    #[test]
    fn z01_any_bytes_are_a_message_or_none(input in vec(any::<u8>(), 0..300)) {
        holds("wire-raw", &input)?;
    }

    #[test]
    fn z01_messages_read_back_and_bend_safely(input in vec(any::<u8>(), 0..260)) {
        holds("wire-structured", &input)?;
    }

    #[test]
    fn a07_a09_plans_stay_in_their_rows(input in vec(any::<u8>(), 0..200)) {
        holds("layout", &input)?;
    }
}

#[test]
fn kept_inputs_hold_and_every_campaign_has_some() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for campaign in &kvbaton_fuzz::CAMPAIGNS {
        let entries = corpus::entries(&folder, campaign).unwrap();
        assert!(!entries.is_empty(), "no kept input of {}", campaign.name);
        for entry in entries {
            if let Some(story) = campaign.explain(&entry.input) {
                panic!("{}: {story}", entry.path.display());
            }
        }
    }
}
