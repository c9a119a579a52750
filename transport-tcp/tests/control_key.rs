//! The cluster key by itself.

use kvbaton_transport_tcp::key::{ClusterKey, Plane, SessionKeys, Side, fresh_nonce};
use proptest::prelude::*;

fn session(key: u8, plane: Plane, nonces: u8) -> SessionKeys {
    ClusterKey::from_bytes([key; 32]).session(plane, &[nonces; 32], &[9; 32])
}

#[test]
fn z04_a_key_is_hexadecimal_or_a_passphrase_and_never_printed() {
    let hex = ClusterKey::parse(&format!("{}\n", "0a".repeat(32))).unwrap();
    let bytes = ClusterKey::from_bytes([10; 32]);
    let tag = |key: &ClusterKey| {
        key.session(Plane::Data, &[1; 32], &[2; 32]).split(Side::Dialer).0.sign(b"x")
    };
    assert_eq!(tag(&hex), tag(&bytes));
    let passphrase = ClusterKey::parse("correct horse battery").unwrap();
    assert_ne!(tag(&passphrase), tag(&bytes));
    assert_eq!(tag(&passphrase), tag(&ClusterKey::parse("correct horse battery\n").unwrap()));
    assert!(ClusterKey::parse("too short").is_err());
    assert_eq!(format!("{bytes:?}"), "ClusterKey(..)");
    assert_ne!(fresh_nonce(), fresh_nonce());
}

#[test]
fn z04_a_proof_is_bound_to_key_plane_nonces_direction_and_order() {
    let keys = session(1, Plane::Control, 1);
    let (mut dialer, _) = keys.split(Side::Dialer);
    let (first, second) = (dialer.sign(b"m"), dialer.sign(b"m"));
    let listener = |keys: &SessionKeys| keys.split(Side::Listener).1;
    let mut good = listener(&keys);
    assert!(good.verify(b"m", &first) && good.verify(b"m", &second));
    assert!(!listener(&keys).verify(b"m", &second), "out of order");
    assert!(!listener(&keys).verify(b"n", &first), "another message");
    assert!(!listener(&keys).verify(b"m", &first[..31]), "a short tag");
    assert!(!keys.split(Side::Dialer).1.verify(b"m", &first), "reflected");
    for other in
        [session(2, Plane::Control, 1), session(1, Plane::Data, 1), session(1, Plane::Control, 2)]
    {
        assert!(!listener(&other).verify(b"m", &first));
    }
}

proptest! {
    #[test]
    fn z04_any_flipped_bit_fails(message in prop::collection::vec(any::<u8>(), 1..200), at: usize) {
        let keys = session(1, Plane::Data, 1);
        let tag = keys.split(Side::Dialer).0.sign(&message);
        let mut changed = [&tag[..], &message].concat();
        let at = at % (changed.len() * 8);
        changed[at / 8] ^= 1 << (at % 8);
        let (tag, message) = changed.split_at(tag.len());
        prop_assert!(!keys.split(Side::Listener).1.verify(message, tag));
    }
}
