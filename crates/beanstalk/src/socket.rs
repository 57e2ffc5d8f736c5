use std::{
    fmt,
    future::poll_fn,
    io::{self, IoSlice},
    net::Shutdown,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::BytesMut;
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::Interest,
    net::{TcpStream, UnixStream},
};

use crate::door::KeepAlive;

/// A client's connection that no kernel knows: made up by a simulation. As with a socket, only one
/// task waits for each thing at a time.
pub trait Stream: fmt::Debug + Send + Sync + 'static {
    /// Writes what it takes at once; [`io::ErrorKind::WouldBlock`] if that is nothing.
    ///
    /// # Errors
    ///
    /// The connection is broken.
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Appends to `buffer`, within its capacity, what has arrived; 0 is the end of the input,
    /// [`io::ErrorKind::WouldBlock`] that there is nothing yet.
    ///
    /// # Errors
    ///
    /// The connection is broken.
    fn try_read(&self, buffer: &mut BytesMut) -> io::Result<usize>;

    /// Ready when there is something to read, the end and errors included.
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()>;

    /// Ready when something can be written, or the connection is broken.
    fn poll_writable(&self, context: &mut Context<'_>) -> Poll<()>;

    /// Ready when the client has shut its sending side (`false`) or is gone (`true`), whatever is
    /// still unread.
    fn poll_hung_up(&self, context: &mut Context<'_>) -> Poll<bool>;

    /// Ready when the connection is broken in both directions.
    fn poll_broken(&self, context: &mut Context<'_>) -> Poll<()>;

    /// Shuts the sending side, behind all that was written.
    fn farewell(&self);
}

/// A client's socket. Every operation takes `&self`, so that answers can be written from the
/// thread they come on while the connection's task waits to read.
#[derive(Debug)]
pub(crate) enum Socket {
    /// TCP.
    Tcp(TcpStream),
    /// A Unix stream socket.
    Unix(UnixStream),
    /// None of the kernel's.
    Other(Arc<dyn Stream>),
}

impl Socket {
    /// Sets what a client's socket has: no delay, keep-alive and user time-out, so that a vanished
    /// worker's wait or hold does not last (architecture, section 7).
    pub(crate) fn prepare(&self, keep_alive: &KeepAlive) -> io::Result<()> {
        let Self::Tcp(stream) = self else {
            return Ok(());
        };
        stream.set_nodelay(true)?;
        let socket = SockRef::from(stream);
        let probes = TcpKeepalive::new()
            .with_time(keep_alive.idle)
            .with_interval(keep_alive.interval)
            .with_retries(keep_alive.probes);
        socket.set_tcp_keepalive(&probes)?;
        socket.set_tcp_user_timeout(Some(keep_alive.user_timeout))
    }

    /// Writes what the socket takes at once.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Unix(stream) => stream.try_write(bytes),
            Self::Other(stream) => stream.try_write(bytes),
        }
    }

    /// Writes of several slices what the socket takes at once.
    pub(crate) fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write_vectored(slices),
            Self::Unix(stream) => stream.try_write_vectored(slices),
            Self::Other(stream) => {
                let first = slices.iter().find(|slice| !slice.is_empty());
                first.map_or(Ok(0), |slice| stream.try_write(slice))
            }
        }
    }

    /// Appends to `buffer`, within its capacity, what has arrived; 0 is the end of the input.
    ///
    /// A read that does not fill the buffer has emptied the socket. That is noted as if a second
    /// read had found nothing, so that the next wait for more needs no such read.
    pub(crate) fn try_read_buf(&self, buffer: &mut BytesMut) -> io::Result<usize> {
        let room = buffer.capacity() - buffer.len();
        let mut drained = None;
        let mut note = |read: io::Result<usize>| match read {
            Ok(count) if count > 0 && count < room => {
                drained = Some(count);
                Err(io::ErrorKind::WouldBlock.into())
            }
            read => read,
        };
        let readable = Interest::READABLE;
        let read = match self {
            Self::Tcp(stream) => stream.try_io(readable, || note(stream.try_read_buf(buffer))),
            Self::Unix(stream) => stream.try_io(readable, || note(stream.try_read_buf(buffer))),
            Self::Other(stream) => return stream.try_read(buffer),
        };
        drained.map_or(read, Ok)
    }

    /// Waits until something can be written.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.writable().await,
            Self::Unix(stream) => stream.writable().await,
            Self::Other(stream) => {
                poll_fn(|cx| stream.poll_writable(cx)).await;
                Ok(())
            }
        }
    }

    /// Waits until there may be something to read, the end included. A spurious wake-up is fine.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => poll_fn(|cx| stream.poll_read_ready(cx)).await,
            Self::Unix(stream) => poll_fn(|cx| stream.poll_read_ready(cx)).await,
            Self::Other(stream) => {
                poll_fn(|cx| stream.poll_readable(cx)).await;
                Ok(())
            }
        }
    }

    /// Waits until the client has shut its sending side or is gone, whatever is still unread.
    ///
    /// The kernel reports both with the "read side closed" event (`EPOLLRDHUP`), and that is also
    /// part of what "priority" interest waits for; urgent data itself is not subscribed to, so
    /// nothing else wakes it. `true` if the connection is gone altogether.
    pub(crate) async fn hung_up(&self) -> io::Result<bool> {
        let ready = match self {
            Self::Tcp(stream) => stream.ready(Interest::PRIORITY).await?,
            Self::Unix(stream) => stream.ready(Interest::PRIORITY).await?,
            Self::Other(stream) => return Ok(poll_fn(|cx| stream.poll_hung_up(cx)).await),
        };
        Ok(ready.is_write_closed() || self.is_broken())
    }

    /// Waits until the connection is broken in both directions.
    pub(crate) async fn broken(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.ready(Interest::ERROR).await.map(drop),
            Self::Unix(stream) => stream.ready(Interest::ERROR).await.map(drop),
            Self::Other(stream) => {
                poll_fn(|cx| stream.poll_broken(cx)).await;
                Ok(())
            }
        }
    }

    /// Whether an error is pending on the socket: the client's kernel has reset the connection.
    fn is_broken(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut fds = match self {
            Self::Tcp(stream) => [PollFd::new(stream, PollFlags::empty())],
            Self::Unix(stream) => [PollFd::new(stream, PollFlags::empty())],
            Self::Other(_) => return false,
        };
        // With no events asked for, poll still reports errors and hang-ups.
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut fds, Some(&at_once)).is_ok_and(|count| count > 0)
            && fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
    }

    /// Says goodbye so that the client gets every byte written before: shuts the sending side and
    /// throws away what is unread (closing a socket with unread input would reset the connection,
    /// and a reset overtakes replies).
    pub(crate) fn farewell(&self) {
        let shut = match self {
            Self::Tcp(stream) => SockRef::from(stream).shutdown(Shutdown::Write),
            Self::Unix(stream) => SockRef::from(stream).shutdown(Shutdown::Write),
            Self::Other(stream) => {
                stream.farewell();
                return;
            }
        };
        if shut.is_err() {
            return;
        }
        let mut waste = BytesMut::with_capacity(FAREWELL_BYTES);
        for _ in 0..FAREWELL_READS {
            waste.clear();
            if !matches!(self.try_read_buf(&mut waste), Ok(1..)) {
                break;
            }
        }
    }
}

/// Unread bytes that a farewell throws away per read, and reads at most: a client that goes on
/// sending behind its `quit` gets a reset.
const FAREWELL_BYTES: usize = 16 * 1024;
const FAREWELL_READS: usize = 64;
