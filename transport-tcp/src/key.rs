//! The cluster key and what both planes prove with it `[Z04]`.
//!
//! No cipher: each side sends a fresh nonce, both derive one key per direction from
//! the cluster key and the two nonces, and each message carries a keyed BLAKE3 hash
//! over its sequence number and bytes. A message of another connection, of the other
//! direction, of the other plane, or seen before has a different hash.

use std::fmt;
use std::net::IpAddr;
use std::sync::Once;

/// Length of a nonce, in bytes.
pub const NONCE_LEN: usize = 32;
/// Length of a tag, in bytes.
pub const TAG_LEN: usize = 32;

/// A fresh random number that one side of one connection contributes.
pub type Nonce = [u8; NONCE_LEN];
/// Proof that a message comes from a holder of the key.
pub type Tag = [u8; TAG_LEN];

/// The secret that all nodes of a cluster share `[Z04]`.
#[derive(Clone)]
pub struct ClusterKey([u8; 32]);

impl ClusterKey {
    /// A key from its 32 bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The key itself, for a data plane's handshake.
    #[must_use]
    pub const fn bytes(&self) -> [u8; 32] {
        self.0
    }

    /// Parses 64 hexadecimal digits as the key itself; anything else of at least 16
    /// bytes is a passphrase that the key is derived from. Surrounding white space is
    /// ignored, so that a file's trailing newline does no harm.
    ///
    /// # Errors
    /// When the passphrase is too short to be a secret.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let text = text.trim();
        if let Some(bytes) = parse_hex(text) {
            return Ok(Self(bytes));
        }
        if text.len() < MIN_PASSPHRASE {
            return Err(KeyError { len: text.len() });
        }
        Ok(Self(blake3::derive_key("kvbaton 2025 cluster key from passphrase v1", text.as_bytes())))
    }

    /// The keys of one connection. Both sides call it with the same arguments.
    #[must_use]
    pub fn session(&self, plane: Plane, dialer: &Nonce, listener: &Nonce) -> SessionKeys {
        let derive = |direction: &[u8]| {
            let mut hasher = blake3::Hasher::new_keyed(&self.0);
            hasher.update(plane.label());
            hasher.update(direction);
            hasher.update(dialer);
            hasher.update(listener);
            *hasher.finalize().as_bytes()
        };
        SessionKeys { to_listener: derive(b"to listener"), to_dialer: derive(b"to dialer  ") }
    }
}

/// Never shows the key.
impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey(..)")
    }
}

impl Drop for ClusterKey {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

/// Overwrites a secret in a way that the optimiser keeps.
fn wipe(secret: &mut [u8; 32]) {
    *std::hint::black_box(secret) = [0; 32];
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
}

const MIN_PASSPHRASE: usize = 16;

fn parse_hex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        *byte = u8::try_from(high * 16 + low).ok()?;
    }
    Some(bytes)
}

/// A cluster key that is too short.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the cluster key has {len} characters: give 64 hexadecimal digits (`openssl rand -hex 32`) or a passphrase of at least 16"
)]
pub struct KeyError {
    /// Characters given.
    pub len: usize,
}

/// Which plane a connection belongs to; proofs of one are worthless on the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plane {
    /// Control messages.
    Control,
    /// Bulk writes.
    Data,
}

impl Plane {
    const fn label(self) -> &'static [u8] {
        match self {
            Self::Control => b"kvbaton control v1",
            Self::Data => b"kvbaton data    v1",
        }
    }
}

/// Which side of a connection one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// It connected.
    Dialer,
    /// It accepted.
    Listener,
}

/// Both directions' keys of one connection.
#[derive(Clone)]
pub struct SessionKeys {
    to_listener: [u8; 32],
    to_dialer: [u8; 32],
}

impl SessionKeys {
    /// What this side signs its messages with, and what it checks the peer's with.
    #[must_use]
    pub fn split(&self, side: Side) -> (Signer, Verifier) {
        let (outgoing, incoming) = match side {
            Side::Dialer => (self.to_listener, self.to_dialer),
            Side::Listener => (self.to_dialer, self.to_listener),
        };
        (Signer { key: outgoing, sequence: 0 }, Verifier { key: incoming, sequence: 0 })
    }
}

impl Drop for SessionKeys {
    fn drop(&mut self) {
        wipe(&mut self.to_listener);
        wipe(&mut self.to_dialer);
    }
}

/// Signs one direction of one connection, message by message.
pub struct Signer {
    key: [u8; 32],
    sequence: u64,
}

impl Signer {
    /// The tag of the next message.
    pub fn sign(&mut self, message: &[u8]) -> Tag {
        let tag = tag(&self.key, self.sequence, message);
        self.sequence += 1;
        *tag.as_bytes()
    }
}

impl Drop for Signer {
    fn drop(&mut self) {
        wipe(&mut self.key);
    }
}

/// Checks one direction of one connection, message by message.
pub struct Verifier {
    key: [u8; 32],
    sequence: u64,
}

impl Verifier {
    /// Whether `tag` belongs to the next message; in constant time. After a failure
    /// the connection is to be closed.
    #[must_use]
    pub fn verify(&mut self, message: &[u8], tag: &[u8]) -> bool {
        let expected = self::tag(&self.key, self.sequence, message);
        self.sequence += 1;
        let Ok(given) = <Tag>::try_from(tag) else { return false };
        // `blake3::Hash` compares in constant time.
        expected == blake3::Hash::from_bytes(given)
    }
}

impl Drop for Verifier {
    fn drop(&mut self) {
        wipe(&mut self.key);
    }
}

fn tag(key: &[u8; 32], sequence: u64, message: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(&sequence.to_le_bytes());
    hasher.update(message);
    hasher.finalize()
}

/// A fresh nonce from the thread's cryptographic generator.
#[must_use]
pub fn fresh_nonce() -> Nonce {
    rand::random()
}

/// Warns, once per process, that a socket listens beyond loopback without a key `[Z04]`.
/// Returns whether this call was the one that warned.
pub fn warn_if_exposed(listening_on: IpAddr, key: Option<&ClusterKey>) -> bool {
    static WARNED: Once = Once::new();
    if key.is_some() || listening_on.to_canonical().is_loopback() {
        return false;
    }
    let mut warned = false;
    WARNED.call_once(|| {
        warned = true;
        tracing::warn!(
            %listening_on,
            "listening beyond loopback without a cluster key: whoever reaches this port can read \
             and write KV cache; set `cluster_key` on every node, or keep the port inside a \
             trusted network"
        );
    });
    warned
}
