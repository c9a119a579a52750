//! Whatever is written reads back the same, within the sizes that we promise.

mod support;

use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::Grant;
use kvbaton_core::ids::WeightVersion;
use kvbaton_core::wire::{
    Form, LayoutColumns, Limits, Malformed, Pull, Reply, ToPrefill, describe, describe_reply,
};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn decode(bytes: &[u8]) -> Result<ToPrefill, Malformed> {
    ToPrefill::decode(bytes, &Limits::default())
}

fn compact(pull: &Pull) -> Vec<u8> {
    let mut bytes = Vec::new();
    pull.encode_compact(&mut bytes);
    bytes
}

fn stock(pull: &Pull) -> Vec<u8> {
    let mut bytes = Vec::new();
    pull.encode_stock(&mut bytes);
    bytes
}

/// The pull of that vector as our own D would send it.
fn ours(name: &str) -> Pull {
    let Ok(ToPrefill::Pull(mut pull)) = decode(&support::pull_vector(name)) else {
        panic!("{name} is a pull");
    };
    pull.extension = Some(support::extension());
    for request in &mut pull.requests {
        request.grant = Some(Grant(0x8123_4567_89ab_cdef));
        request.end_token = Some(131_071);
    }
    if let Some(layout) = &mut pull.layout {
        layout.extension = Some(support::layout_extension(layout));
    }
    pull
}

proptest! {
    #[test]
    fn w_stock_pulls_round_trip(pull in support::stock_pull()) {
        let bytes = stock(&pull);
        prop_assert_eq!(Form::of(&bytes), Form::Stock);
        prop_assert_eq!(decode(&bytes), Ok(ToPrefill::Pull(pull)));
    }

    #[test]
    fn w_the_stock_form_drops_what_is_ours_and_nothing_else(
        pull in support::stock_pull(), extension in any::<bool>()
    ) {
        let mut ours = pull.clone();
        ours.extension = extension.then(support::extension);
        ours.requests.iter_mut().for_each(|request| request.grant = Some(Grant(7)));
        prop_assert_eq!(stock(&ours), stock(&pull));
    }

    #[test]
    fn w_compact_pulls_round_trip(pull in support::any_pull()) {
        let bytes = compact(&pull);
        prop_assert_eq!(Form::of(&bytes), Form::Compact);
        prop_assert_eq!(decode(&bytes), Ok(ToPrefill::Pull(pull)));
    }

    #[test]
    fn w_drops_round_trip(message in support::any_drop()) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        prop_assert_eq!(Form::of(&bytes), Form::Compact);
        prop_assert_eq!(decode(&bytes), Ok(ToPrefill::Drop(message)));
    }

    #[test]
    fn w_replies_round_trip(reply in support::any_reply()) {
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        prop_assert_eq!(Reply::decode(&bytes, &Limits::default()), Ok(reply));
    }

    #[test]
    fn w_layouts_of_one_long_name_round_trip(
        prefix in 0usize..4000, regions in 0usize..300, shared in 0usize..200
    ) {
        // Few bytes would stand for very many: the encoder must choose the plain form.
        let mut pull = ours("layout, small");
        pull.layout = Some(LayoutColumns {
            base_addrs: vec![1 << 40; regions],
            block_lens: vec![4096; regions],
            kv_block_lens: vec![4096; regions],
            layer_names: vec!["n".repeat(prefix); regions],
            layer_indices: vec![0; regions],
            group_indices: vec![-1; regions],
            shared_group_ids: vec![vec![3; shared]; regions],
            row_offsets: vec![-1; regions],
            extension: None,
        });
        prop_assert_eq!(decode(&compact(&pull)), Ok(ToPrefill::Pull(pull)));
    }

    #[test]
    fn w_any_message_can_be_described(
        pull in support::any_pull(), drop in support::any_drop(), reply in support::any_reply()
    ) {
        let text = describe(&ToPrefill::Pull(pull.clone()));
        // What a peer sent must not steer the terminal that shows it.
        prop_assert!(text.lines().all(|line| !line.contains(char::is_control)), "{:?}", text);
        let port = format!(":{}, ", pull.session.port);
        prop_assert!(text.contains(&port), "{:?}", text);
        for request in &pull.requests {
            let id = request.request_id.as_str();
            prop_assert!(text.contains(id), "{}", id);
        }
        let transfers = drop.transfers.clone();
        let text = describe(&ToPrefill::Drop(drop));
        prop_assert!(transfers.iter().all(|(id, _, _)| text.contains(id.as_str())));
        let text = describe_reply(&reply);
        let status = format!("answer: {:?}", reply.status);
        prop_assert!(text.starts_with(&status), "{}", text);
    }
}

#[test]
fn w_steady_pull_between_our_nodes_fits_200_bytes() {
    let pull = ours("146 regions layout-less");
    assert_eq!(pull.requests[0].groups.len(), 4);
    let bytes = compact(&pull);
    assert!(bytes.len() <= 200, "{} bytes", bytes.len());
}

#[test]
fn w_r07_weights_are_left_out_when_not_stated_and_absent_ones_read_as_that() {
    let mut pull = ours("146 regions layout-less");
    let with = compact(&pull);
    pull.extension.as_mut().expect("an extension").weights = WeightVersion::default();
    let without = compact(&pull);
    assert_eq!(with.len() - without.len(), 5, "a number of 32 bits");
    assert_eq!(decode(&without), Ok(ToPrefill::Pull(pull.clone())));
    let stated = with.windows(4).position(|it| it == 0xffff_fffeu32.to_be_bytes());
    // As a revision that knows no weights wrote it, and one that knows more writes it.
    let mut newer = with.clone();
    let array = newer.iter().position(|byte| *byte == 0x97).expect("the extension's array");
    newer[array] = 0x98;
    newer.splice(stated.unwrap() + 4..stated.unwrap() + 4, *b"\xa1x");
    assert_eq!(decode(&newer), decode(&with));
    assert_eq!(without.iter().filter(|byte| **byte == 0x96).count(), 1, "six elements, as before");
}

#[test]
fn w_steady_pull_fits_200_bytes_at_any_number_of_contiguous_blocks() {
    let mut pull = ours("146 regions layout-less");
    pull.requests[0].groups = vec![BlockList::run(3_000_000, 1_000_000); 4];
    let bytes = compact(&pull);
    assert!(bytes.len() <= 200, "{} bytes", bytes.len());
    assert_eq!(decode(&bytes), Ok(ToPrefill::Pull(pull)));
}

#[test]
fn w_pull_with_the_layout_between_our_nodes_fits_3000_bytes() {
    let pull = ours("146 regions with layout");
    let layout = pull.layout.as_ref().expect("a layout");
    assert_eq!(layout.extension.as_ref().expect("an extension").memory.len(), 146);
    let bytes = compact(&pull);
    assert!(bytes.len() <= 3000, "{} bytes", bytes.len());
}

#[test]
fn w_towards_stock_no_more_than_the_reference() {
    for vector in support::vectors("pulls") {
        let Ok(ToPrefill::Pull(mut pull)) = decode(&vector.bytes) else {
            panic!("{} is a pull", vector.name);
        };
        pull.extension = Some(support::extension());
        assert_eq!(stock(&pull), vector.bytes, "{}", vector.name);
    }
}

#[test]
fn w_a_description_says_form_layout_and_what_an_old_peer_lacks() {
    let text = |name: &str| describe(&decode(&support::pull_vector(name)).expect("a pull"));
    let old = text("decode that predates groups and offsets");
    assert!(old.contains("stock, no extension"), "{old}");
    assert!(
        old.contains(
            "lacks registered_group_indices, registered_shared_group_ids, registered_row_offsets"
        ),
        "{old}"
    );
    assert!(text("decode that predates layout_id").contains("no layout id"));
    assert!(text("146 regions layout-less").contains("relies on the cache of P"));
    assert!(text("release, empty groups").contains("asks for a release"));
    let ours = describe(&ToPrefill::Pull(ours("146 regions with layout")));
    let kind = "42 × model.layers.{n}.attn.swa_cache: group 0, stride 37440, payload 37440";
    assert!(ours.contains(kind), "{ours}");
    assert!(ours.contains("group 0: 32 blocks in 1 run, 50319360 bytes"), "{ours}");
    assert!(ours.contains("deepseek-ai/DeepSeek-V4"), "{ours}");
}

#[test]
fn w_every_vector_of_a_pull_round_trips_in_the_compact_form() {
    let mut sizes = BTreeSet::new();
    for vector in support::vectors("pulls") {
        let message = decode(&vector.bytes).expect("a pull");
        let ToPrefill::Pull(pull) = &message else { panic!("{} is a pull", vector.name) };
        let bytes = compact(pull);
        assert!(bytes.len() < vector.bytes.len(), "{}", vector.name);
        sizes.insert(bytes.len());
        assert_eq!(decode(&bytes), Ok(message), "{}", vector.name);
    }
    assert!(sizes.len() > 1);
}
