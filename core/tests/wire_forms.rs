//! Each form of a value at its bounds: the smallest is written, every one is read, and
//! limits hold to the last byte `[Z01]`.

mod support;

use kvbaton_core::blocks::BlockList;
use kvbaton_core::ids::{LayoutId, RequestId, SessionAddress};
use kvbaton_core::wire::{
    Form, LayoutColumns, Limits, Malformed, Problem, Pull, PullRequest, Reply, ReplyExtension,
    Status, ToPrefill,
};

fn reply() -> Reply {
    Reply {
        status: Status::Finish,
        ok: None,
        failed: None,
        message: None,
        layout_id: LayoutId::NONE,
        extension: None,
    }
}

fn encoded(reply: &Reply) -> Vec<u8> {
    let mut out = Vec::new();
    reply.encode(&mut out);
    assert_eq!(Reply::decode(&out, &Limits::default()).as_ref(), Ok(reply));
    out
}

/// A pull of one of our own vectors, without its layout and its requests.
fn bare() -> Pull {
    let bytes = support::pull_vector("release, empty groups");
    let Ok(ToPrefill::Pull(pull)) = ToPrefill::decode(&bytes, &Limits::default()) else {
        panic!("a pull");
    };
    let session = SessionAddress { host: "h".into(), port: 1 };
    Pull { session, layout_id: LayoutId(1), layout: None, requests: Vec::new(), ..pull }
}

fn request(name: &str) -> PullRequest {
    PullRequest {
        request_id: name.into(),
        transfer_id: "t".into(),
        groups: Vec::new(),
        grant: None,
        end_token: None,
    }
}

fn stock(pull: &Pull) -> Vec<u8> {
    let mut out = Vec::new();
    pull.encode_stock(&mut out);
    out
}

fn compact(pull: &Pull) -> Vec<u8> {
    let mut out = Vec::new();
    pull.encode_compact(&mut out);
    out
}

fn read(bytes: &[u8], limits: &Limits) -> Result<Pull, Malformed> {
    ToPrefill::decode(bytes, limits).map(|message| match message {
        ToPrefill::Pull(pull) => pull,
        ToPrefill::Drop(_) => panic!("a pull"),
    })
}

#[test]
fn w_unsigned_numbers_take_the_smallest_form() {
    for (value, form) in [
        (1, &[1][..]),
        (0x7f, &[0x7f]),
        (0x80, &[0xcc, 0x80]),
        (0xff, &[0xcc, 0xff]),
        (0x100, &[0xcd, 1, 0]),
        (0xffff, &[0xcd, 0xff, 0xff]),
        (0x1_0000, &[0xce, 0, 1, 0, 0]),
        (0xffff_ffff, &[0xce, 0xff, 0xff, 0xff, 0xff]),
        (0x1_0000_0000, &[0xcf, 0, 0, 0, 1, 0, 0, 0, 0]),
    ] {
        let bytes = encoded(&Reply { layout_id: LayoutId(value), ..reply() });
        let expected = [&b"\x82\xa6status\x00\xa9layout_id"[..], form].concat();
        assert_eq!(bytes, expected, "{value:#x}");
    }
}

#[test]
fn w_signed_numbers_take_the_smallest_form_and_every_form_is_read() {
    let written = |value: i64| {
        let layout = LayoutColumns {
            base_addrs: vec![7],
            row_offsets: vec![value],
            ..LayoutColumns::default()
        };
        let pull = Pull { layout: Some(layout), ..bare() };
        let bytes = stock(&pull);
        assert_eq!(read(&bytes, &Limits::default()), Ok(pull), "{value}");
        let field = b"\xb6registered_row_offsets\x91";
        let at = bytes.windows(field.len()).position(|it| it == field).expect("the column");
        let rest = &bytes[at + field.len()..];
        let next = rest.windows(10).position(|it| it == b"\xa9layout_id").expect("the next field");
        rest[..next].to_vec()
    };
    for (value, form) in [
        (0, &[0][..]),
        (127, &[0x7f]),
        (-1, &[0xff]),
        (-32, &[0xe0]),
        (-33, &[0xd0, 0xdf]),
        (-0x80, &[0xd0, 0x80]),
        (-0x81, &[0xd1, 0xff, 0x7f]),
        (-0x8000, &[0xd1, 0x80, 0]),
        (-0x8001, &[0xd2, 0xff, 0xff, 0x7f, 0xff]),
        (-0x8000_0000, &[0xd2, 0x80, 0, 0, 0]),
        (-0x8000_0001, &[0xd3, 0xff, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff]),
    ] {
        assert_eq!(written(value), form, "{value}");
    }
}

#[test]
fn w_strings_arrays_and_maps_take_the_smallest_header() {
    for (len, header) in [
        (0, &[0xa0][..]),
        (31, &[0xbf]),
        (32, &[0xd9, 32]),
        (255, &[0xd9, 255]),
        (256, &[0xda, 1, 0]),
        (65_535, &[0xda, 0xff, 0xff]),
        (65_536, &[0xdb, 0, 1, 0, 0]),
    ] {
        let bytes = encoded(&Reply { message: Some("x".repeat(len)), ..reply() });
        let start = [&b"\x82\xa6status\x00\xa7err_msg"[..], header].concat();
        assert_eq!((bytes.len(), &bytes[..start.len()]), (start.len() + len, &start[..]));
    }
    let named = |count: usize| -> Vec<RequestId> {
        (0..count).map(|index| RequestId::from(format!("{index:04}"))).collect()
    };
    for (count, array, map) in [
        (15, &[0x9f][..], &[0x8f][..]),
        (16, &[0xdc, 0, 16], &[0xde, 0, 16]),
        (300, &[0xdc, 1, 44], &[0xde, 1, 44]),
    ] {
        let bytes = encoded(&Reply { ok: Some(named(count)), ..reply() });
        let start = [&b"\x82\xa6status\x00\xa7ok_reqs"[..], array, b"\xa40000"].concat();
        assert_eq!(&bytes[..start.len()], start);
        let requests = named(count).iter().map(|name| request(name.as_str())).collect();
        let pull = Pull { requests, ..bare() };
        let bytes = stock(&pull);
        let field = [&b"\xaareq_blocks"[..], map, b"\xa40000\x92\xa1t\x90"].concat();
        assert!(bytes.windows(field.len()).any(|it| it == field), "{count}");
        assert_eq!(read(&bytes, &Limits::default()).map(|it| it.requests.len()), Ok(count));
    }
    let settled = |settled: bool| {
        let outcomes = vec![("r".into(), kvbaton_core::wire::FailureReason::Aborted, settled)];
        let extension = ReplyExtension { outcomes, ..ReplyExtension::default() };
        encoded(&Reply { extension: Some(extension), ..reply() })
    };
    assert!(settled(false).ends_with(&[0xa1, b'r', 1, 0xc2]));
    assert!(settled(true).ends_with(&[0xa1, b'r', 1, 0xc3]));
}

#[test]
fn w_unknown_values_of_every_width_are_skipped() {
    let long = |header: &[u8], len: usize| [header, &vec![7; len]].concat();
    let values: Vec<Vec<u8>> = vec![
        vec![0xcc, 200],
        vec![0xcd, 1, 2],
        vec![0xce, 1, 2, 3, 4],
        vec![0xcf, 1, 2, 3, 4, 5, 6, 7, 8],
        vec![0xd0, 1],
        vec![0xd1, 1, 2],
        vec![0xd2, 1, 2, 3, 4],
        vec![0xd3, 1, 2, 3, 4, 5, 6, 7, 8],
        vec![0xc2],
        long(&[0xd6, 1], 4),
        long(&[0xd7, 1], 8),
        long(&[0xc7, 255, 1], 255),
        long(&[0xc8, 1, 2, 1], 0x102),
        long(&[0xc9, 0, 1, 2, 3, 1], 0x1_0203),
        long(&[0xd9, 40], 40),
        long(&[0xda, 1, 0], 256),
        long(&[0xdb, 0, 0, 1, 0], 256),
        long(&[0xc5, 1, 0], 256),
        long(&[0xdc, 0, 16], 16),
        long(&[0xdd, 0, 0, 0, 16], 16),
        long(&[0xde, 0, 16], 32),
        long(&[0xdf, 0, 0, 0, 16], 32),
    ];
    for value in values {
        let bytes = [&b"\x82\xa2zz"[..], &value, b"\xa6status\x01"].concat();
        let read = Reply::decode(&bytes, &Limits::default());
        assert_eq!(read, Ok(Reply { status: Status::Continue, ..reply() }), "{:x?}", &value[..2]);
    }
}

#[test]
fn w_maps_of_every_width_are_read_and_an_empty_one_lacks_its_fields() {
    for map in [&[0x81][..], &[0xde, 0, 1], &[0xdf, 0, 0, 0, 1]] {
        let bytes = [map, b"\xa6status\x02"].concat();
        let read = Reply::decode(&bytes, &Limits::default()).map(|it| it.status);
        assert_eq!(read, Ok(Status::Error));
    }
    let error = read(&[0x80], &Limits::default()).expect_err("empty");
    assert_eq!((error.field, error.problem), ("remote_hostname", Problem::Missing));
    assert_eq!((Form::of(&[0x80]), Form::of(b"\x81\xa3kvb")), (Form::Stock, Form::Compact));
    // Larger than any frame may be: its form is told all the same.
    let large = [&b"\x81\xa3kvb"[..], &vec![0; 17 << 20]].concat();
    assert_eq!(Form::of(&large), Form::Compact);
}

#[test]
fn z01_a_request_may_name_as_many_blocks_as_allowed() {
    let mut pull = bare();
    pull.requests = vec![request("r")];
    pull.requests[0].groups = vec![BlockList::run(0, 3)];
    let blocks = |limit| Limits { blocks_per_request: limit, ..Limits::default() };
    for bytes in [stock(&pull), compact(&pull)] {
        assert_eq!(read(&bytes, &blocks(3)).as_ref(), Ok(&pull));
        let error = read(&bytes, &blocks(2)).expect_err("one too many").problem;
        assert_eq!(error, Problem::OverLimit { what: "blocks of a request", limit: 2 });
    }
    // A name that comes back after others is found, too.
    pull.requests = ["a", "b", "a"].map(request).to_vec();
    for bytes in [stock(&pull), compact(&pull)] {
        let error = read(&bytes, &Limits::default()).expect_err("twice").problem;
        assert_eq!(error, Problem::Twice);
    }
}

#[test]
fn z01_varints_are_refused_where_they_are_wrong() {
    let pull = Pull { requests: vec![request("r")], ..bare() };
    let bytes = compact(&pull);
    assert!(bytes.ends_with(&[0xc4, 0]));
    let with = |runs: &[u8]| {
        let head = &bytes[..bytes.len() - 1];
        let bytes = [head, &[runs.len() as u8], runs].concat();
        read(&bytes, &Limits::default()).map_err(|it| (it.offset - head.len() - 1, it.problem))
    };
    let truncated = |at| Err((at, Problem::Truncated));
    let too_large = |at| Err((at, Problem::OutOfRange { expected: "0 to 2^64 - 1" }));
    // A number of runs in two bytes, of one.
    assert!(with(&[0x81, 0x00, 2, 1]).is_ok());
    assert_eq!(with(&[1, 2, 0x80]), truncated(2));
    assert_eq!(with(&[&[0x80; 9][..], &[2]].concat()), too_large(0));
    assert_eq!(with(&[0xff; 9]), truncated(0));
    assert_eq!(with(&[0xff; 10]), too_large(0));
    assert_eq!(with(&[&[0xff; 9][..], &[1]].concat()), truncated(10), "that many runs");
}

/// A layout of one region a name, alike but for its layer.
fn layout(names: &[(String, i64)]) -> LayoutColumns {
    let count = names.len();
    LayoutColumns {
        base_addrs: (0..count as u64).map(|index| index * 64).collect(),
        block_lens: vec![64; count],
        kv_block_lens: vec![64; count],
        layer_names: names.iter().map(|it| it.0.clone()).collect(),
        layer_indices: names.iter().map(|it| it.1).collect(),
        group_indices: vec![0; count],
        shared_group_ids: vec![vec![0]; count],
        row_offsets: vec![-1; count],
        extension: None,
    }
}

fn round_trip(layout: LayoutColumns, limits: &Limits) -> Result<usize, Problem> {
    let pull = Pull { layout: Some(layout), ..bare() };
    let bytes = compact(&pull);
    match read(&bytes, limits) {
        Ok(there) => assert_eq!(there, pull),
        Err(error) => return Err(error.problem),
    }
    Ok(bytes.len())
}

#[test]
fn w_a_layer_number_that_is_its_index_costs_nothing() {
    let len = |step: i64| {
        let names: Vec<_> = (0..40).map(|layer| (format!("l.{layer}.a"), layer + step)).collect();
        round_trip(layout(&names), &Limits::default()).expect("a layout")
    };
    assert_eq!(len(1) - len(0), 40, "one byte a region");
}

#[test]
fn z01_a_name_put_together_keeps_the_limit_of_strings() {
    for name in ["l.0.a", "l.9.a", "l.10.a", "l.99.a", "l.100.a", "l.18446744073709551615.a", "la"]
    {
        for index in [0, 9, 10, 99, 100] {
            let layout = layout(&[(name.to_owned(), index)]);
            let limit = |string_bytes| Limits { string_bytes, ..Limits::default() };
            let reads = |limit| round_trip(layout.clone(), &limit).map(drop);
            assert_eq!(reads(limit(name.len())), Ok(()), "{name}");
            let short = name.len() - 1;
            let error = Problem::OverLimit { what: "bytes in a string", limit: short as u64 };
            assert_eq!(reads(limit(short)), Err(error), "{name}");
        }
    }
}

#[test]
fn z01_a_layout_that_would_grow_too_much_is_written_so_that_it_is_read() {
    // Around where rows would stand for more than they may, byte by byte.
    for regions in [64, 65] {
        for len in 200..300 {
            let names: Vec<_> =
                (0..regions).map(|layer| (format!("{}.{layer}", "n".repeat(len)), layer)).collect();
            let size = round_trip(layout(&names), &Limits::default());
            assert!(size.is_ok(), "{regions} names of {len}: {size:?}");
        }
    }
}
