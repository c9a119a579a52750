//! A data plane with memory.

use crate::{Options, Planes};
use kvbaton_actors::transport::{
    DataPlane, GrantedRows, PeerKind, Registration, Write, WriteId, WriteOutcome,
};
use kvbaton_core::ids::{Address, Bytes, Generation, Grant, SessionAddress};
use kvbaton_core::region::{Copy, MemoryRange};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// Far longer than anything takes; reaching it fails the test.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A data plane with one registered range.
pub struct Node {
    /// The data plane.
    pub plane: Arc<dyn DataPlane>,
    /// Its registration.
    pub registration: Registration,
    /// Its memory.
    pub range: MemoryRange,
    memory: *mut u8,
}

// SAFETY: the memory is touched through raw pointers only, as a peer's writes touch it.
unsafe impl Send for Node {}
// SAFETY: as above.
unsafe impl Sync for Node {}

impl Node {
    /// An ordinary one; each byte of its memory is `fill`.
    pub fn new(planes: &dyn Planes, len: usize, fill: u8) -> Self {
        Self::with(planes, Options::default(), len, fill)
    }

    /// One that is opened like this.
    pub fn with(planes: &dyn Planes, options: Options, len: usize, fill: u8) -> Self {
        Self::of(planes.open(options), len, fill)
    }

    /// Memory for a data plane that is open.
    pub fn of(plane: Arc<dyn DataPlane>, len: usize, fill: u8) -> Self {
        let memory = Box::into_raw(vec![fill; len].into_boxed_slice()).cast::<u8>();
        let start = Address(memory.expose_provenance() as u64);
        let range = MemoryRange { start, len: Bytes(len as u64) };
        // SAFETY: the memory is freed after it was unregistered, see `Drop`.
        let registration = unsafe { plane.register(&[range]) }.expect("registers");
        Self { plane, registration, range, memory }
    }

    /// Unregisters and registers the same memory again.
    pub fn register_again(&mut self) {
        block_on(self.plane.unregister(self.registration.generation)).expect("unregisters");
        // SAFETY: as in `of`.
        self.registration = unsafe { self.plane.register(&[self.range]) }.expect("registers");
    }

    /// The address at an offset.
    pub fn at(&self, offset: u64) -> Address {
        Address(self.range.start.0 + offset)
    }

    /// All of its memory.
    pub fn read(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.range.len.0 as usize];
        // SAFETY: the memory is live and as long as `bytes`.
        unsafe { std::ptr::copy_nonoverlapping(self.memory, bytes.as_mut_ptr(), bytes.len()) };
        bytes
    }

    /// Sets each byte by its offset.
    pub fn fill_with(&self, byte: impl Fn(usize) -> u8) {
        for offset in 0..self.range.len.0 as usize {
            // SAFETY: inside the live memory.
            unsafe { self.memory.add(offset).write_volatile(byte(offset)) };
        }
    }

    /// Opens a grant for one row.
    pub fn grant(&self, grant: u64, offset: u64, len: u64) -> Grant {
        self.grant_rows(grant, &[(offset, len)])
    }

    /// Opens a grant.
    pub fn grant_rows(&self, grant: u64, rows: &[(u64, u64)]) -> Grant {
        let grant = Grant(grant);
        let row =
            |(offset, len): &(u64, u64)| MemoryRange { start: self.at(*offset), len: Bytes(*len) };
        let rows = rows.iter().map(row).collect();
        let generation = self.registration.generation;
        let granted = GrantedRows { grant, generation, rows, allow_ungranted: false };
        self.plane.open_grant(granted).expect("opens the grant");
        grant
    }

    /// A write of this node's into `to`.
    pub fn write_to(&self, to: &Self, grant: Grant, copies: Vec<Copy>) -> Write {
        let registration = &to.registration;
        let (generation, keys) = (Some(registration.generation), registration.keys.clone());
        self.write(to.plane.session(), generation, Some(grant), keys, copies)
    }

    /// A write of this node's.
    pub fn write(
        &self,
        session: SessionAddress,
        generation: Option<Generation>,
        grant: Option<Grant>,
        keys: Vec<u8>,
        copies: Vec<Copy>,
    ) -> Write {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Write {
            id: WriteId(NEXT.fetch_add(1, SeqCst)),
            session,
            kind: PeerKind::Kvbaton,
            generation,
            grant,
            keys: keys.into(),
            copies,
            timeout: PATIENCE,
        }
    }

    /// Carries a write out.
    pub fn run(&self, write: Write) -> WriteOutcome {
        block_on(self.plane.write(write))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let unregistered = block_on(self.plane.unregister(self.registration.generation));
        if unregistered.is_err() {
            // Better leaked than written to.
            return;
        }
        let len = self.range.len.0 as usize;
        // SAFETY: made by `Box::into_raw` of a slice of this length; nobody uses it since
        // unregister returned.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.memory, len)) });
    }
}

/// One copy.
pub fn copy(source: Address, destination: Address, len: u64) -> Copy {
    Copy { source, destination, len: Bytes(len) }
}

/// Waits for what another thread does.
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
