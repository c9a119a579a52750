//! What the data plane's tests share: nodes with memory, and hand-made peers.
#![allow(dead_code, reason = "each test file uses its share")]

use kvbaton_actors::transport::{DataPlane, GrantedRows, PeerKind, Write, WriteId, WriteOutcome};
use kvbaton_core::ids::{Address, Bytes, Generation, Grant, SessionAddress};
use kvbaton_core::region::{Copy, MemoryRange};
use kvbaton_transport_tcp::data::{DataConfig, TcpDataPlane};
use std::future::Future;
use std::io::{Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// Far longer than anything takes; reaching it fails the test.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A data plane with one registered range.
pub struct Node {
    pub plane: Arc<TcpDataPlane>,
    pub generation: Generation,
    pub range: MemoryRange,
    memory: *mut u8,
}

impl Node {
    pub fn new(len: usize, fill: u8) -> Self {
        Self::with(DataConfig::default(), len, fill)
    }

    pub fn with(config: DataConfig, len: usize, fill: u8) -> Self {
        let memory = vec![fill; len].into_boxed_slice();
        let memory = Box::into_raw(memory).cast::<u8>();
        let start = Address(memory.expose_provenance() as u64);
        let range = MemoryRange { start, len: Bytes(len as u64) };
        let plane = TcpDataPlane::open(config).expect("opens");
        // SAFETY: the memory is freed after the plane was dropped, see `Drop`.
        let generation = unsafe { plane.register(&[range]) }.expect("registers").generation;
        Self { plane, generation, range, memory }
    }

    pub fn at(&self, offset: u64) -> Address {
        Address(self.range.start.0 + offset)
    }

    pub fn len(&self) -> usize {
        self.range.len.0 as usize
    }

    pub fn read(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        // SAFETY: the memory is live and as long as `bytes`.
        unsafe { std::ptr::copy_nonoverlapping(self.memory, bytes.as_mut_ptr(), bytes.len()) };
        bytes
    }

    pub fn fill_with(&self, byte: impl Fn(usize) -> u8) {
        for offset in 0..self.len() {
            // SAFETY: inside the live memory.
            unsafe { self.memory.add(offset).write(byte(offset)) };
        }
    }

    pub fn grant(&self, grant: u64, offset: u64, len: u64) -> Grant {
        self.grant_rows(grant, &[(offset, len)], false)
    }

    pub fn grant_rows(&self, grant: u64, rows: &[(u64, u64)], allow_ungranted: bool) -> Grant {
        let grant = Grant(grant);
        let row =
            |(offset, len): &(u64, u64)| MemoryRange { start: self.at(*offset), len: Bytes(*len) };
        let rows = rows.iter().map(row).collect();
        let generation = self.generation;
        let granted = GrantedRows { grant, generation, rows, allow_ungranted };
        self.plane.open_grant(granted).expect("opens the grant");
        grant
    }

    /// A write of this node's into `to`.
    pub fn write_to(&self, to: &Node, grant: Grant, copies: Vec<Copy>) -> Write {
        self.write(to.plane.session(), Some(to.generation), Some(grant), copies)
    }

    pub fn write(
        &self,
        session: SessionAddress,
        generation: Option<Generation>,
        grant: Option<Grant>,
        copies: Vec<Copy>,
    ) -> Write {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Write {
            id: WriteId(NEXT.fetch_add(1, SeqCst)),
            session,
            kind: PeerKind::Kvbaton,
            generation,
            grant,
            keys: Arc::from([]),
            copies,
            timeout: PATIENCE,
        }
    }

    pub fn run(&self, write: Write) -> WriteOutcome {
        block_on(self.plane.write(write))
    }

    /// Waits for a counter, which another thread moves.
    pub fn wait_for(&self, reached: impl Fn(kvbaton_actors::transport::DataCounters) -> bool) {
        wait_until(|| reached(self.plane.counters()));
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        block_on(self.plane.unregister(self.generation)).expect("unregisters");
        let len = self.len();
        // SAFETY: made by `Box::into_raw` of a slice of this length; nobody uses it since
        // unregister returned.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.memory, len)) });
    }
}

pub fn copy(source: Address, destination: Address, len: u64) -> Copy {
    Copy { source, destination, len: Bytes(len) }
}

pub fn wait_until(reached: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !reached() {
        assert!(Instant::now() < deadline, "nothing happened");
        std::thread::yield_now();
    }
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread; fails the test if it never ends.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let deadline = Instant::now() + PATIENCE * 2;
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "the future never ended");
        std::thread::park_timeout(left);
    }
}

/// The greeting as `PROTOCOL.md` has it, without a key.
pub fn greeting(keyed: bool) -> Vec<u8> {
    let mut bytes = b"kvbaton\x01".to_vec();
    bytes.extend([1, 0, u8::from(keyed), 0, 0, 0, 0, 0]);
    bytes.extend([7; 32]);
    bytes
}

/// A client of our protocol, made by hand.
pub struct RawClient(pub TcpStream);

impl RawClient {
    pub fn connect(node: &Node) -> Self {
        let client = Self(dial(node.plane.session().port));
        let mut client = client;
        client.send(&greeting(false));
        let mut answer = [0; 48 + 8];
        client.0.read_exact(&mut answer).expect("a greeting and a welcome");
        assert_eq!(&answer[48..], b"kvb-okay");
        client
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("sends");
    }

    /// Header and table; the payload is for the test to send.
    pub fn header(&mut self, frame: &RawFrame) {
        self.send(&frame.encode());
    }

    /// An acknowledgement: whether it is the last one, its verdict, its batch.
    pub fn ack(&mut self) -> (bool, u8, u64) {
        let mut ack = [0; 24];
        self.0.read_exact(&mut ack).expect("an acknowledgement");
        (ack[0] == 1, ack[1], u64::from_le_bytes(ack[8..16].try_into().expect("eight bytes")))
    }

    pub fn is_closed(&mut self) -> bool {
        matches!(self.0.read(&mut [0; 64]), Ok(0))
            || matches!(self.0.read(&mut [0; 64]), Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset)
    }
}

pub fn dial(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("sets");
    stream.set_write_timeout(Some(PATIENCE)).expect("sets");
    stream
}

#[derive(Clone)]
pub struct RawFrame {
    pub last: bool,
    pub generation: Option<Generation>,
    pub grant: Option<Grant>,
    pub batch: u64,
    pub table: Vec<(u64, u64)>,
    pub payload: u64,
}

impl RawFrame {
    pub fn encode(&self) -> Vec<u8> {
        let flags = u8::from(self.last)
            | u8::from(self.generation.is_some()) << 2
            | u8::from(self.grant.is_some()) << 3;
        let mut bytes = vec![1, flags];
        bytes.extend((self.table.len() as u16).to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(self.batch.to_le_bytes());
        bytes.extend(self.generation.map_or(0, |g| g.0).to_le_bytes());
        bytes.extend(self.grant.map_or(0, |g| g.0).to_le_bytes());
        bytes.extend(self.payload.to_le_bytes());
        for (address, len) in &self.table {
            bytes.extend(address.to_le_bytes());
            bytes.extend(len.to_le_bytes());
        }
        bytes
    }
}

/// A server of our protocol that greets and then does what the test wants.
pub fn raw_server(
    serve: impl FnOnce(TcpStream) + Send + 'static,
) -> (SessionAddress, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let port = listener.local_addr().expect("bound").port();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accepts");
        drop(listener);
        stream.set_read_timeout(Some(PATIENCE)).expect("sets");
        stream.read_exact(&mut [0; 48]).expect("a greeting");
        let mut answer = greeting(false);
        answer.extend(b"kvb-okay");
        stream.write_all(&answer).expect("sends");
        serve(stream);
    });
    (SessionAddress { host: "127.0.0.1".into(), port }, thread)
}
