//! Sockets: what the standard library lacks, in small safe wrappers.
//!
//! Every call here is non-blocking except [`wait`], which is told how long.

use kvbaton_actors::transport::TransportError;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// One piece of memory in a scattered read or write: first address and length. Plain
/// numbers, because the memory belongs to the embedding engine and not to Rust.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) address: usize,
    pub(super) len: usize,
}

/// The position `by` bytes behind byte `skip` of piece `next`.
pub(super) fn advance(
    pieces: &[Piece],
    mut next: usize,
    mut skip: usize,
    mut by: usize,
) -> (usize, usize) {
    while by > 0 {
        let room = pieces[next].len - skip;
        if by < room {
            return (next, skip + by);
        }
        by -= room;
        (next, skip) = (next + 1, 0);
    }
    (next, skip)
}

/// Copies bytes into memory that Rust knows nothing of.
///
/// # Safety
/// The piece must be writable now and must not overlap `from`; it is as long as `from`.
pub(super) unsafe fn copy_out(from: &[u8], to: Piece) {
    debug_assert_eq!(from.len(), to.len);
    let to_pointer = std::ptr::with_exposed_provenance_mut::<u8>(to.address);
    // SAFETY: the caller vouches for the piece; `from` is a live slice of that length.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to_pointer, to.len) };
}

/// Most pieces that one system call takes (`UIO_MAXIOV`).
pub(super) const MAX_PIECES: usize = 1024;

/// Pieces of one call, cut at a number of pieces and of bytes, ready for the system.
pub(super) struct Gather {
    iovecs: Vec<libc::iovec>,
    limit: usize,
    max_bytes: usize,
}

// SAFETY: the addresses are plain numbers here; whoever passes them to `send_pieces` or
// `receive_pieces` promises that they are valid then.
unsafe impl Send for Gather {}

impl Gather {
    /// Takes at most `limit` pieces and `max_bytes` bytes a call.
    pub(super) fn new(limit: usize, max_bytes: usize) -> Self {
        let limit = limit.min(MAX_PIECES);
        Self { iovecs: Vec::with_capacity(limit), limit, max_bytes }
    }

    /// Starts over with the first pieces of `pieces`, less `skip` bytes of the first.
    pub(super) fn fill(&mut self, pieces: &[Piece], mut skip: usize) {
        self.iovecs.clear();
        let mut room = self.max_bytes;
        for piece in pieces.iter().take(self.limit) {
            let len = (piece.len - skip).min(room);
            if len == 0 {
                break;
            }
            let base = std::ptr::with_exposed_provenance_mut(piece.address + skip);
            self.iovecs.push(libc::iovec { iov_base: base, iov_len: len });
            room -= len;
            skip = 0;
        }
    }

    fn message(&mut self) -> libc::msghdr {
        // SAFETY: all zeroes is a valid `msghdr`.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = self.iovecs.as_mut_ptr();
        message.msg_iovlen = self.iovecs.len() as _;
        message
    }
}

/// Sends from scattered memory without blocking.
///
/// # Safety
/// Every piece gathered must be readable now.
pub(super) unsafe fn send_pieces(socket: RawFd, gather: &mut Gather) -> io::Result<usize> {
    let message = gather.message();
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: `message` points at live iovecs, the caller vouches for what they point at.
    counted(unsafe { libc::sendmsg(socket, &raw const message, flags) })
}

/// Receives into scattered memory without blocking. `Ok(0)` is the end of the stream.
///
/// # Safety
/// Every piece gathered must be writable now, and nothing of Rust may refer to it.
pub(super) unsafe fn receive_pieces(socket: RawFd, gather: &mut Gather) -> io::Result<usize> {
    let mut message = gather.message();
    // SAFETY: `message` points at live iovecs, the caller vouches for what they point at.
    counted(unsafe { libc::recvmsg(socket, &raw mut message, libc::MSG_DONTWAIT) })
}

/// Receives what is there. `Ok(0)` is the end of the stream.
pub fn receive(socket: RawFd, into: &mut [u8]) -> io::Result<usize> {
    let (pointer, len) = (into.as_mut_ptr().cast(), into.len());
    // SAFETY: pointer and length are those of a live slice.
    counted(unsafe { libc::recv(socket, pointer, len, libc::MSG_DONTWAIT) })
}

/// Drops up to `len` received bytes without copying them. `Ok(0)` is the end of the stream.
pub(super) fn discard(socket: RawFd, len: usize) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    // SAFETY: TCP with MSG_TRUNC drops the bytes and never touches the pointer.
    counted(unsafe { libc::recv(socket, std::ptr::null_mut(), len, flags) })
}

/// Sends what fits.
pub fn send(socket: RawFd, from: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: pointer and length are those of a live slice.
    counted(unsafe { libc::send(socket, from.as_ptr().cast(), from.len(), flags) })
}

fn counted(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Whether the call would have had to wait, or was interrupted: try again.
pub fn is_retry(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// What [`wait`] waits for, besides the end of the connection.
#[derive(Clone, Copy)]
pub struct Interest {
    /// Readable, or closed by the peer.
    pub read: bool,
    /// Writable.
    pub write: bool,
}

/// To read, or for the peer to close.
pub const READABLE: Interest = Interest { read: true, write: false };
/// To write.
pub const WRITABLE: Interest = Interest { read: false, write: true };

/// Waits until one descriptor is ready (or in error), or the time is over: false then.
pub fn wait(fds: &[(RawFd, Interest)], timeout: Option<Duration>) -> io::Result<bool> {
    let mut polled = [libc::pollfd { fd: -1, events: 0, revents: 0 }; 4];
    for (slot, (fd, interest)) in polled.iter_mut().zip(fds) {
        let read = if interest.read { libc::POLLIN } else { libc::POLLRDHUP };
        let write = if interest.write { libc::POLLOUT } else { 0 };
        *slot = libc::pollfd { fd: *fd, events: read | write, revents: 0 };
    }
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let count = fds.len().min(polled.len()) as libc::nfds_t;
    // SAFETY: `polled` holds `count` entries, `timeout` is null or points at a live value.
    let ready = unsafe { libc::ppoll(polled.as_mut_ptr(), count, timeout, std::ptr::null()) };
    match counted(ready as isize) {
        Ok(ready) => Ok(ready > 0),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
        Err(error) => Err(error),
    }
}

/// Fills `into`, within the deadline.
pub fn receive_exact(socket: RawFd, into: &mut [u8], deadline: Instant) -> io::Result<()> {
    let mut got = 0;
    while got < into.len() {
        match receive(socket, &mut into[got..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(more) => got += more,
            Err(error) if is_retry(&error) => wait_until(socket, READABLE, deadline)?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Sends all of `from`, within the deadline.
pub fn send_all(socket: RawFd, from: &[u8], deadline: Instant) -> io::Result<()> {
    let mut sent = 0;
    while sent < from.len() {
        match send(socket, &from[sent..]) {
            Ok(more) => sent += more,
            Err(error) if is_retry(&error) => wait_until(socket, WRITABLE, deadline)?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn wait_until(socket: RawFd, interest: Interest, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() || !wait(&[(socket, interest)], Some(left))? {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(())
}

/// Wakes a thread that waits in [`wait`].
pub struct Wake(OwnedFd);

impl Wake {
    /// Makes one.
    ///
    /// # Errors
    /// When there are no more descriptors.
    pub fn new() -> io::Result<Self> {
        // SAFETY: plain call; the descriptor it returns is owned from here on.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        counted(fd as isize)?;
        // SAFETY: a fresh descriptor that nobody else owns.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// What [`wait`] waits for.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Wakes it.
    pub fn wake(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: eight bytes of a live array. A full counter means "woken" already.
        unsafe { libc::write(self.fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Takes the wake-ups seen so far.
    pub fn clear(&self) {
        let mut count = [0_u8; 8];
        // SAFETY: eight bytes of a live array; nothing to read is fine.
        unsafe { libc::read(self.fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

/// Gives the processor to whoever waits for it.
pub(super) fn yield_now() {
    std::thread::yield_now();
}

/// Listens with large buffers, which accepted connections inherit.
pub fn listen(host: &str, port: u16, buffer: usize) -> Result<TcpListener, TransportError> {
    let what = || format!("listening for data connections on {host}:{port}");
    let local =
        |error: io::Error| TransportError::Local { what: what(), reason: error.to_string() };
    let address = (host, port).to_socket_addrs().map_err(local)?.next();
    let address = address.ok_or_else(|| local(io::ErrorKind::NotFound.into()))?;
    let bind = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_recv_buffer_size(buffer)?;
        socket.bind(&address.into())?;
        socket.listen(1024)?;
        Ok(socket.into())
    };
    bind().map_err(local)
}

/// Resolves a peer to the addresses that may be connected to `[Z05]`.
pub fn resolve(
    host: &str,
    port: u16,
    allowed: impl Fn(IpAddr) -> bool,
    allowed_text: &str,
) -> Result<Vec<SocketAddr>, TransportError> {
    let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    let unreachable = |reason: String| TransportError::Unreachable {
        peer: format!("{host}:{port}"),
        reason: format!("its name does not resolve ({reason})"),
    };
    let resolved = (host, port).to_socket_addrs().map_err(|e| unreachable(e.to_string()))?;
    let (fine, refused): (Vec<_>, Vec<_>) = resolved.partition(|address| allowed(address.ip()));
    match (fine.is_empty(), refused.first()) {
        (false, _) => Ok(fine),
        (true, Some(refused)) => Err(TransportError::AddressNotAllowed {
            address: refused.ip().to_string(),
            allowed: allowed_text.into(),
        }),
        (true, None) => Err(unreachable("no address".into())),
    }
}

/// Connects to the first address that answers, with large buffers.
pub fn connect(
    addresses: &[SocketAddr],
    buffer: usize,
    deadline: Instant,
) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match connect_one(*address, buffer, left) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn connect_one(address: SocketAddr, buffer: usize, timeout: Duration) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_send_buffer_size(buffer)?;
    socket.connect_timeout(&address.into(), timeout)?;
    let stream = TcpStream::from(socket);
    tune(&stream)?;
    Ok(stream)
}

/// Small messages go at once; a peer whose machine died is noticed in the end.
pub fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    SockRef::from(stream).set_keepalive(true)
}

/// Drops what is unsent and resets the connection, at once, also while another thread
/// waits on the socket: connecting to nowhere is how Linux spells it [F05].
pub(super) fn reset(stream: &TcpStream) {
    // Should the reset below not be taken, closing does it.
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
    let nowhere =
        libc::sockaddr { sa_family: libc::AF_UNSPEC as libc::sa_family_t, sa_data: [0; 14] };
    let len = size_of::<libc::sockaddr>() as libc::socklen_t;
    // SAFETY: `nowhere` is a live address of the length given.
    unsafe { libc::connect(stream.as_raw_fd(), &raw const nowhere, len) };
}
