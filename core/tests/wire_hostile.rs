//! Nothing received is trusted `[Z01]`: what is wrong is refused by name and place, within
//! bounded memory, and what is unknown is skipped.

mod support;

use kvbaton_core::wire::{Limits, Malformed, Problem, Pull, Reply, ToPrefill};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

fn decode(bytes: &[u8]) -> Result<ToPrefill, Malformed> {
    ToPrefill::decode(bytes, &Limits::default())
}

/// Writes JSON as msgpack, integers in their widest form when `wide`.
fn pack(out: &mut Vec<u8>, value: &Value, wide: bool) {
    match value {
        Value::Null => out.push(0xc0),
        Value::Bool(value) => out.push(0xc2 | u8::from(*value)),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(value @ 0..=127), _) if !wide => out.push(value as u8),
            (Some(value), _) => {
                out.push(0xcf);
                out.extend(value.to_be_bytes());
            }
            (_, Some(value)) => {
                out.push(0xd3);
                out.extend(value.to_be_bytes());
            }
            _ => {
                out.push(0xcb);
                out.extend(number.as_f64().expect("a float").to_be_bytes());
            }
        },
        Value::String(text) => {
            out.push(0xdb);
            out.extend((text.len() as u32).to_be_bytes());
            out.extend(text.as_bytes());
        }
        Value::Array(values) => {
            out.push(0xdd);
            out.extend((values.len() as u32).to_be_bytes());
            values.iter().for_each(|value| pack(out, value, wide));
        }
        Value::Object(pairs) => {
            out.push(0xdf);
            out.extend((pairs.len() as u32).to_be_bytes());
            for (key, value) in pairs {
                pack(out, &Value::String(key.clone()), wide);
                pack(out, value, wide);
            }
        }
    }
}

fn packed(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    pack(&mut out, value, false);
    out
}

/// A map of the pairs in the order given, with everything in its widest form.
fn packed_map(pairs: &[(String, Value)]) -> Vec<u8> {
    let mut out = vec![0xdf];
    out.extend((pairs.len() as u32).to_be_bytes());
    for (key, value) in pairs {
        pack(&mut out, &Value::String(key.clone()), true);
        pack(&mut out, value, true);
    }
    out
}

fn small() -> Value {
    json!({
        "remote_hostname": "10.0.0.2", "remote_port": 1, "remote_tp_size": 4,
        "remote_tp_rank": 1, "req_blocks": { "r": ["t", [[1, 2, 3]]] },
        "kv_caches_base_addr": [4096], "block_lens": [64], "kv_block_lens": [64],
        "registered_layer_names": ["a.0"], "registered_layer_indices": [0],
        "registered_group_indices": [-1], "registered_shared_group_ids": [[0, 1]],
        "registered_row_offsets": [-1], "remote_pp_size": 2, "layout_id": 77,
    })
}

fn small_with(field: &str, value: Value) -> Vec<u8> {
    let mut fields = small();
    fields[field] = value;
    packed(&fields)
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f32>().prop_filter("JSON", |f| f.is_finite()).prop_map(|f| json!(f64::from(f) + 0.5)),
        ".{0,40}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((".{0,5}", inner), 0..4).prop_map(|pairs| pairs.into_iter().collect()),
        ]
    })
}

fn insert_unknown(
    fields: &Value,
    unknown: Vec<(String, Value, Index)>,
    order: Vec<Index>,
) -> Vec<(String, Value)> {
    let object = fields.as_object().expect("an object");
    let mut pairs: Vec<_> =
        object.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    for (from, index) in order.into_iter().enumerate() {
        let to = index.index(pairs.len());
        let from = from % pairs.len();
        pairs.swap(from, to);
    }
    for (name, value, index) in unknown {
        let at = index.index(pairs.len() + 1);
        pairs.insert(at, (format!("x{name}"), value));
    }
    pairs
}

fn unknown_fields() -> impl Strategy<Value = Vec<(String, Value, Index)>> {
    vec((".{0,8}", any_value(), any::<Index>()), 0..5)
}

proptest! {
    #[test]
    fn w_stock_pulls_are_read_in_any_order_and_width_with_unknown_fields_anywhere(
        unknown in unknown_fields(), order in vec(any::<Index>(), 15)
    ) {
        for vector in support::vectors("pulls").into_iter().filter(|v| v.bytes.len() < 1000) {
            let pairs = insert_unknown(&vector.fields, unknown.clone(), order.clone());
            prop_assert_eq!(decode(&packed_map(&pairs)), decode(&vector.bytes));
        }
    }

    #[test]
    fn w_replies_are_read_in_any_order_and_width_with_unknown_fields_anywhere(
        unknown in unknown_fields(), order in vec(any::<Index>(), 5)
    ) {
        let limits = Limits::default();
        for vector in support::vectors("replies") {
            let pairs = insert_unknown(&vector.fields, unknown.clone(), order.clone());
            let read = Reply::decode(&packed_map(&pairs), &limits);
            prop_assert_eq!(read, Reply::decode(&vector.bytes, &limits));
        }
    }

    #[test]
    fn w_a_newer_revision_may_add_elements_and_fields(
        pull in support::any_pull(), drop in support::any_drop(), tail in vec(any_value(), 0..4),
        field in any_value()
    ) {
        let (mut pull_bytes, mut drop_bytes) = (Vec::new(), Vec::new());
        pull.encode_compact(&mut pull_bytes);
        drop.encode(&mut drop_bytes);
        for (bytes, message) in [
            (pull_bytes, ToPrefill::Pull(pull)), (drop_bytes, ToPrefill::Drop(drop)),
        ] {
            prop_assert_eq!(decode(&with_tail(&bytes, &tail, &field)), Ok(message));
        }
    }

    #[test]
    fn z01_a_message_cut_short_or_longer_is_refused(
        pull in support::stock_pull(), reply in support::any_reply(), cut in any::<Index>()
    ) {
        let (mut stock, mut compact, mut answer) = (Vec::new(), Vec::new(), Vec::new());
        pull.encode_stock(&mut stock);
        pull.encode_compact(&mut compact);
        reply.encode(&mut answer);
        for bytes in [&mut stock, &mut compact] {
            let problem = decode(&bytes[..cut.index(bytes.len())]).unwrap_err().problem;
            prop_assert_eq!(problem, Problem::Truncated);
            bytes.push(0);
            prop_assert_eq!(decode(bytes).unwrap_err().problem, Problem::TrailingBytes(1));
        }
        let cut = Reply::decode(&answer[..cut.index(answer.len())], &Limits::default());
        prop_assert_eq!(cut.unwrap_err().problem, Problem::Truncated);
        answer.push(0xc0);
        let longer = Reply::decode(&answer, &Limits::default());
        prop_assert_eq!(longer.unwrap_err().problem, Problem::TrailingBytes(1));
    }
}

/// A compact message whose array has more elements at its end, and its map one more field.
fn with_tail(bytes: &[u8], tail: &[Value], field: &Value) -> Vec<u8> {
    // A map of one pair, `kvb`, and an array of fewer than 16 elements.
    assert_eq!(bytes[..5], *b"\x81\xa3kvb");
    assert_eq!(bytes[5] & 0xf0, 0x90);
    let mut newer = bytes.to_vec();
    newer[0] = 0x82;
    newer[5] += tail.len() as u8;
    tail.iter().for_each(|value| pack(&mut newer, value, true));
    pack(&mut newer, &json!("kvc"), false);
    pack(&mut newer, field, true);
    newer
}

fn refusal(bytes: &[u8]) -> (&'static str, Problem) {
    let error = decode(bytes).unwrap_err();
    (error.field, error.problem)
}

#[test]
fn z01_a_missing_field_is_named() {
    for field in [
        "remote_hostname",
        "remote_port",
        "remote_tp_size",
        "remote_tp_rank",
        "req_blocks",
        "kv_caches_base_addr",
        "block_lens",
        "kv_block_lens",
    ] {
        let mut fields = small();
        fields.as_object_mut().unwrap().remove(field);
        assert_eq!(refusal(&packed(&fields)), (field, Problem::Missing));
    }
    let error = Reply::decode(&[0x80], &Limits::default()).unwrap_err();
    assert_eq!((error.field, error.problem), ("status", Problem::Missing));
}

#[test]
fn z01_a_wrong_type_is_refused_by_field_and_offset() {
    for field in small().as_object().unwrap().keys() {
        for value in [Value::Null, json!(1.0), json!(true)] {
            let bytes = small_with(field, value);
            let error = decode(&bytes).unwrap_err();
            assert_eq!(error.field, field);
            assert!(matches!(error.problem, Problem::WrongType { .. }), "{error}");
            let name = bytes.windows(field.len()).position(|w| w == field.as_bytes()).unwrap();
            assert_eq!(error.offset, name + field.len(), "{error}");
        }
    }
    let bytes = small_with("remote_port", json!("http"));
    assert!(decode(&bytes).unwrap_err().to_string().starts_with(
        "malformed message: expected an integer, found a string, in `remote_port` at byte "
    ));
}

#[test]
fn z01_integers_out_of_range_are_refused() {
    for (field, value) in [
        ("remote_port", json!(65_536)),
        ("remote_port", json!(-1)),
        ("remote_tp_rank", json!(-1)),
        ("remote_tp_size", json!(1u64 << 32)),
        ("kv_caches_base_addr", json!([-1])),
        ("block_lens", json!([-4096])),
        ("layout_id", json!(-1)),
        ("registered_group_indices", json!([u64::MAX])),
        ("req_blocks", json!({ "r": ["t", [[1u64 << 32]]] })),
        ("req_blocks", json!({ "r": ["t", [[-1]]] })),
    ] {
        let (found, problem) = refusal(&small_with(field, value));
        assert_eq!(found, field);
        assert!(matches!(problem, Problem::OutOfRange { .. }), "{field}: {problem}");
    }
}

#[test]
fn z01_a_string_that_is_not_utf8_is_refused() {
    let bytes = packed(&small());
    let at = bytes.windows(8).position(|window| window == b"10.0.0.2").unwrap();
    let mut broken = bytes.clone();
    broken[at] = 0xff;
    assert_eq!(refusal(&broken), ("remote_hostname", Problem::NotUtf8));
}

#[test]
fn z01_what_appears_twice_is_refused() {
    let object = small();
    let mut pairs: Vec<_> =
        object.as_object().unwrap().iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    pairs.push(("layout_id".to_owned(), json!(78)));
    assert_eq!(refusal(&packed_map(&pairs)), ("layout_id", Problem::Twice));

    let Ok(ToPrefill::Pull(mut pull)) = decode(&packed(&object)) else { panic!("a pull") };
    pull.requests.push(pull.requests[0].clone());
    let (mut stock, mut compact) = (Vec::new(), Vec::new());
    pull.encode_stock(&mut stock);
    pull.encode_compact(&mut compact);
    assert_eq!(refusal(&stock), ("req_blocks", Problem::Twice));
    assert_eq!(refusal(&compact), ("requests", Problem::Twice));
}

/// Compact bytes of the small pull with the runs of its only group replaced.
fn with_runs(runs: &[u8]) -> Vec<u8> {
    let Ok(ToPrefill::Pull(pull)) = decode(&packed(&small())) else { panic!("a pull") };
    let mut bytes = Vec::new();
    pull.encode_compact(&mut bytes);
    // One group: one run, from 1 (zigzag 2), of 3 blocks.
    assert!(bytes.ends_with(&[0xc4, 3, 1, 2, 3]));
    bytes.truncate(bytes.len() - 4);
    bytes.push(runs.len() as u8);
    bytes.extend(runs);
    bytes
}

#[test]
fn z01_compact_runs_are_checked() {
    let last = [0xfe, 0xff, 0xff, 0xff, 0x1f]; // zigzag of 2^32 - 1
    let run = |start: &[u8], len: &[u8]| [&[1], start, len].concat();
    assert!(decode(&with_runs(&run(&last, &[1]))).is_ok());
    for (runs, problem) in [
        (run(&last, &[2]), Problem::BadRun),
        (run(&[2], &[0]), Problem::BadRun),
        (run(&[1], &[1]), Problem::BadRun),
        (run(&[2], &[0x80, 0x80, 0x80, 0x80, 0x10]), Problem::BadRun),
        (run(&[0x80, 0x80, 0x80, 0x80, 0x20], &[1]), Problem::BadRun),
        (vec![9, 2, 3], Problem::Truncated),
        (vec![1, 2], Problem::Truncated),
        (vec![1, 2, 0x80], Problem::Truncated),
        (
            vec![1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 1],
            Problem::OutOfRange { expected: "0 to 2^64 - 1" },
        ),
    ] {
        assert_eq!(refusal(&with_runs(&runs)), ("block runs", problem), "{runs:?}");
    }
}

#[test]
fn z01_the_blocks_that_runs_declare_are_bounded() {
    let most = [1, 0, 0xff, 0xff, 0xff, 0xff, 0x0f]; // 2^32 - 1 blocks from 0
    assert!(decode(&with_runs(&most)).is_ok());
    let (_, problem) = refusal(&with_runs(&[&most[..], &[1, 0, 1]].concat()));
    assert_eq!(
        problem,
        Problem::OverLimit { what: "blocks of a request", limit: u64::from(u32::MAX) }
    );
}

#[test]
fn z01_every_limit_is_enforced_in_both_forms() {
    let Ok(ToPrefill::Pull(mut pull)) = decode(&packed(&small())) else { panic!("a pull") };
    let mut second = pull.requests[0].clone();
    second.request_id = "r2".into();
    pull.requests.push(second);
    let layout = pull.layout.as_mut().expect("a layout");
    layout.base_addrs.push(8192);
    layout.layer_names[0] = "a.long.name.0".to_owned();
    pull.requests[0].groups.push([9].into_iter().collect());

    let roomy = Limits {
        frame_bytes: 2000,
        requests: 2,
        regions: 2,
        groups: 2,
        blocks_per_request: 4,
        string_bytes: 13,
        nesting: 0,
    };
    let encoders: [fn(&Pull, &mut Vec<u8>); 2] = [Pull::encode_stock, Pull::encode_compact];
    for encode in encoders {
        let mut bytes = Vec::new();
        encode(&pull, &mut bytes);
        ToPrefill::decode(&bytes, &roomy).expect("all is within the limits");
        let tight = [
            ("bytes", Limits { frame_bytes: bytes.len() - 1, ..roomy }),
            ("requests", Limits { requests: 1, ..roomy }),
            ("regions", Limits { regions: 1, ..roomy }),
            ("groups", Limits { groups: 1, ..roomy }),
            ("blocks of a request", Limits { blocks_per_request: 2, ..roomy }),
            ("bytes in a string", Limits { string_bytes: 12, ..roomy }),
        ];
        for (expected, limits) in tight {
            let problem = ToPrefill::decode(&bytes, &limits).unwrap_err().problem;
            let Problem::OverLimit { what, .. } = problem else { panic!("{expected}: {problem}") };
            assert!(what.starts_with(expected), "{expected}: {what}");
        }
    }
}

#[test]
fn z01_nesting_in_skipped_fields_is_bounded() {
    let nested = |depth: usize| {
        let inner = (0..depth).fold(json!(1), |value, _| json!([value]));
        small_with("zz", inner)
    };
    assert!(decode(&nested(32)).is_ok());
    let (_, problem) = refusal(&nested(33));
    assert_eq!(problem, Problem::OverLimit { what: "levels of nesting", limit: 32 });
    // As deep as a frame allows: it must not reach the end of the stack.
    let mut deep = packed(&small());
    deep[4] += 1;
    pack(&mut deep, &json!("zz"), false);
    deep.resize(1 << 20, 0x91);
    assert_eq!(refusal(&deep).1, problem);
}

#[test]
fn w_unknown_fields_of_every_msgpack_type_are_skipped() {
    let plain = decode(&packed(&small()));
    let values: [&[u8]; 14] = [
        &[0xc0],
        &[0xc3],
        &[0xca, 0, 0, 0, 0],
        &[0xcb, 0, 0, 0, 0, 0, 0, 0, 0],
        &[0xc4, 2, 1, 2],
        &[0xc5, 0, 1, 7],
        &[0xc6, 0, 0, 0, 1, 7],
        &[0xd4, 9, 1],
        &[0xd5, 9, 1, 2],
        &[0xd8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
        &[0xc7, 2, 9, 1, 2],
        &[0xc8, 0, 2, 9, 1, 2],
        &[0xc9, 0, 0, 0, 2, 9, 1, 2],
        &[0x82, 0x01, 0x90, 0xe0, 0x92, 0xd0, 0x80, 0xa1, b'x'],
    ];
    for value in values {
        // Under a name, and under a key that is no string.
        for key in [&b"\xa2zz"[..], &[0x05], &[0x91, 0xc0]] {
            let mut bytes = packed(&small());
            bytes[4] += 1;
            bytes.extend_from_slice(key);
            bytes.extend_from_slice(value);
            assert_eq!(decode(&bytes), plain, "{value:x?}");
        }
    }
    let mut never_used = packed(&small());
    never_used[4] += 1;
    never_used.extend(b"\xa2zz\xc1");
    assert!(matches!(refusal(&never_used).1, Problem::WrongType { .. }));
}

#[test]
fn w_our_field_is_skipped_in_a_stock_pull_and_elsewhere_unknown_kinds_are_refused() {
    let plain = decode(&packed(&small()));
    let mut bytes = packed(&small());
    bytes[4] += 1;
    bytes.extend(b"\xa3kvb\x91\x63");
    assert_eq!(decode(&bytes), plain);
    assert_eq!(refusal(b"\x81\xa3kvb\x91\x63"), ("kvb", Problem::Unknown(0x63)));
    assert_eq!(refusal(b"\x81\xa3kvb\x92\x01\xa0").1, Problem::TooShort { expected: 9, found: 1 });
}

#[test]
fn w_a_newer_reason_is_other_and_a_newer_status_is_refused() {
    let newer = json!({
        "status": 0, "kvb": [2, 0, 0, [["r", 99, true, "more"]], "more"],
    });
    let reply = Reply::decode(&packed(&newer), &Limits::default()).expect("a reply");
    let outcomes = reply.extension.expect("an extension").outcomes;
    assert_eq!(outcomes[0].1, kvbaton_core::wire::FailureReason::Other);
    let error = Reply::decode(&packed(&json!({ "status": 4 })), &Limits::default()).unwrap_err();
    assert_eq!((error.field, error.problem), ("status", Problem::Unknown(4)));
}
