//! Reading never panics and never allocates more than a small multiple of the bytes that
//! are there, whatever they claim `[Z01]`.

mod support;

use kvbaton_core::ids::Grant;
use kvbaton_core::wire::{Limits, Pull, Reply, ToPrefill};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts what each thread holds, and the most that it held.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // A thread that ends has no counters any more, and nothing to measure.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.get())));
    });
}

// SAFETY: every call is passed on to the system allocator unchanged; counting touches only
// thread-local cells, which need no allocation.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract, which is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Most bytes held at once per byte of the message: an empty string in a list of names
/// takes 1 byte there and 24 here, growth and growing vectors the rest.
const PER_BYTE: usize = 64;
/// What does not depend on the message.
const CONSTANT: usize = 16 << 10;

fn peak_of(read: impl FnOnce()) -> usize {
    let before = HELD.get();
    PEAK.set(before);
    read();
    usize::try_from(PEAK.get() - before).expect("a peak is not below its start")
}

/// Reads the bytes every way there is and checks what it took.
fn read_within_bounds(bytes: &[u8]) -> Result<(), TestCaseError> {
    let limits = Limits::default();
    let bound = PER_BYTE * bytes.len() + CONSTANT;
    let peak = peak_of(|| drop(ToPrefill::decode(bytes, &limits)));
    prop_assert!(peak <= bound, "a message of {} bytes took {peak}", bytes.len());
    let peak = peak_of(|| drop(Reply::decode(bytes, &limits)));
    prop_assert!(peak <= bound, "an answer of {} bytes took {peak}", bytes.len());
    Ok(())
}

/// Valid messages of every kind.
fn valid() -> impl Strategy<Value = Vec<u8>> {
    let written = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        write(&mut bytes);
        bytes
    };
    prop_oneof![
        support::stock_pull().prop_map(move |pull| written(&|out| pull.encode_stock(out))),
        support::any_pull().prop_map(move |pull| written(&|out| pull.encode_compact(out))),
        support::any_drop().prop_map(move |drop| written(&|out| drop.encode(out))),
        support::any_reply().prop_map(move |reply| written(&|out| reply.encode(out))),
        Just(ours("146 regions with layout")),
    ]
}

/// The vector as our own D would send it.
fn ours(name: &str) -> Vec<u8> {
    let Ok(ToPrefill::Pull(mut pull)) =
        ToPrefill::decode(&support::pull_vector(name), &Limits::default())
    else {
        panic!("{name} is a pull");
    };
    pull.extension = Some(support::extension());
    pull.requests.iter_mut().for_each(|request| request.grant = Some(Grant(3)));
    let layout = pull.layout.as_mut().expect("a layout");
    layout.extension = Some(support::layout_extension(layout));
    let mut bytes = Vec::new();
    Pull::encode_compact(&pull, &mut bytes);
    bytes
}

#[derive(Debug, Clone)]
enum Mutation {
    Set(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    Repeat(Index, usize),
}

fn mutations() -> impl Strategy<Value = Vec<Mutation>> {
    // Bytes that mean something: large lengths, headers, varints of many bytes.
    let telling = || {
        prop::sample::select(&b"\x00\x01\x80\x90\x91\xa0\xc0\xc4\xc6\xcf\xdb\xdc\xdd\xdf\xff"[..])
    };
    let byte = || prop_oneof![telling(), any::<u8>()];
    let mutation = prop_oneof![
        (any::<Index>(), byte()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        (any::<Index>(), vec(byte(), 1..6)).prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        (any::<Index>(), 1usize..20).prop_map(|(at, len)| Mutation::Remove(at, len)),
        (any::<Index>(), 1usize..40).prop_map(|(at, len)| Mutation::Repeat(at, len)),
    ];
    vec(mutation, 1..6)
}

fn mutate(bytes: &mut Vec<u8>, mutation: Mutation) {
    if bytes.is_empty() {
        return;
    }
    match mutation {
        Mutation::Set(at, byte) => {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        Mutation::Insert(at, inserted) => {
            let at = at.index(bytes.len());
            bytes.splice(at..at, inserted);
        }
        Mutation::Remove(at, len) => {
            let at = at.index(bytes.len());
            bytes.drain(at..bytes.len().min(at + len));
        }
        Mutation::Repeat(at, len) => {
            let at = at.index(bytes.len());
            let again = bytes[at..bytes.len().min(at + len)].to_vec();
            bytes.splice(at..at, again);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn z01_any_bytes_are_read_or_refused_in_bounded_memory(bytes in vec(any::<u8>(), 0..400)) {
        read_within_bounds(&bytes)?;
        let envelope = |kind: u8| [&[0x81, 0xa3, b'k', b'v', b'b', 0x9a, kind], &bytes[..]].concat();
        read_within_bounds(&envelope(1))?;
        read_within_bounds(&envelope(2))?;
    }

    #[test]
    fn z01_mutated_messages_are_read_or_refused_in_bounded_memory(
        bytes in valid(), mutations in mutations()
    ) {
        read_within_bounds(&bytes)?;
        let mut bytes = bytes;
        mutations.into_iter().for_each(|mutation| mutate(&mut bytes, mutation));
        read_within_bounds(&bytes)?;
    }
}

/// A field of that name whose value is these bytes, as the only one of a message.
fn one_field(name: &str, value: &[u8]) -> Vec<u8> {
    [&[0x81, 0xa0 | name.len() as u8], name.as_bytes(), value].concat()
}

#[test]
fn z01_a_count_that_is_claimed_reserves_nothing() {
    let huge_array = [0xdd, 0xff, 0xff, 0xff, 0xff];
    for count in [[0xdd, 0, 0, 0xff, 0xff], huge_array] {
        for field in ["kv_caches_base_addr", "registered_layer_names", "ok_reqs", "kvb"] {
            read_within_bounds(&one_field(field, &count)).unwrap();
        }
    }
    for count in [[0xdf, 0, 0, 0x0f, 0xff], [0xdf, 0xff, 0xff, 0xff, 0xff]] {
        read_within_bounds(&one_field("req_blocks", &count)).unwrap();
        read_within_bounds(&count).unwrap();
    }
}

#[test]
fn z01_elements_of_several_bytes_are_reserved_by_their_least_size() {
    // As many as allowed are claimed, and there are bytes for a few.
    let junk = vec![0xc1; 800];
    let claim = |head: &[u8]| read_within_bounds(&[head, &junk].concat()).unwrap();
    claim(&one_field("req_blocks", &[0xdf, 0, 0, 0x10, 0]));
    claim(b"\x81\xa3kvb\x9a\x01\xa0\x01\x01\x00\x01\x05\xc0\xc0\xdc\x10\x00");
    claim(b"\x81\xa3kvb\x94\x02\x05\x00\xdc\x10\x00");
    claim(&one_field("kvb", b"\x94\x01\x00\x05\xdc\x10\x00"));
}

#[test]
fn z01_the_smallest_elements_stay_within_the_bound() {
    let full = |name: &str, header: [u8; 5], element: &[u8], count: usize| {
        let value = [&header[..], &element.repeat(count)].concat();
        read_within_bounds(&one_field(name, &value)).unwrap();
    };
    let array = [0xdd, 0, 0, 0xff, 0xff];
    full("registered_layer_names", array, &[0xa0], 0xffff);
    full("registered_layer_names", array, &[0xa1, b'x'], 0xffff);
    full("registered_shared_group_ids", array, &[0x90], 0xffff);
    full("registered_shared_group_ids", array, &[0x91, 0], 0xffff);
    full("kv_caches_base_addr", array, &[0], 0xffff);
    let requests = [0xdd, 0, 0, 0x0f, 0xff];
    full("ok_reqs", requests, &[0xa0], 0x0fff);
    let groups = [&[0xa0, 0x92, 0xa0, 0xdc, 1, 0][..], &[0x90; 256]].concat();
    full("req_blocks", [0xdf, 0, 0, 0x0f, 0xff], &groups, 0x0fff);
    let blocks = [&[0xa0, 0x92, 0xa0, 0x91, 0xdc, 1, 0][..], &[1, 9].repeat(128)].concat();
    full("req_blocks", [0xdf, 0, 0, 0x0f, 0xff], &blocks, 0x0fff);
}

/// A compact pull with these layout columns, cut off behind them.
fn with_columns(columns: &[u8]) -> Vec<u8> {
    let length = (columns.len() as u32).to_be_bytes();
    let head = b"\x81\xa3kvb\x9a\x01\xa0\x01\x01\x00\x01\x05\x92\xc6";
    [&head[..], &length, columns].concat()
}

#[test]
fn z01_a_dictionary_of_region_kinds_cannot_multiply() {
    // One kind with a long name and many shared groups, and then regions of 3 bytes.
    let mut columns = vec![1, 1, 0, 0xa0, 0x1f];
    columns.extend([b'n'; 4000]);
    columns.extend([0, 1, 1, 0, 200]);
    columns.push(1);
    columns.extend([0; 200]);
    columns.push(0);
    let start = columns.len();
    columns.extend([0xd0, 0x86, 0x03]); // 50,000 regions
    columns.extend([0; 150_000]);
    let bytes = with_columns(&columns);
    read_within_bounds(&bytes).unwrap();
    let error = ToPrefill::decode(&bytes, &Limits::default()).unwrap_err();
    assert!(error.to_string().contains("more than 32 bytes of layout per byte sent"), "{error}");

    // Counts of regions, kinds and columns that are not there.
    columns.truncate(start + 3);
    read_within_bounds(&with_columns(&columns)).unwrap();
    let regions = [0xd0, 0x86, 0x03];
    for form in [0, 1] {
        let padded = [&[form], &regions[..], &[0; 60_000]].concat();
        read_within_bounds(&with_columns(&padded)).unwrap();
    }
    let empty_kinds =
        [&[1, 0xff, 0x7f][..], &[0; 8].repeat(0x3fff), &regions, &[0; 150_000]].concat();
    read_within_bounds(&with_columns(&empty_kinds)).unwrap();
}
