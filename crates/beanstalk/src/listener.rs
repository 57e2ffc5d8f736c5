use std::{
    fmt, fs, io,
    net::{SocketAddr, TcpListener as StdTcpListener},
    os::unix::{fs::FileTypeExt as _, net::UnixStream as StdUnixStream},
    path::{Path, PathBuf},
};

use socket2::{Domain, Protocol, SockAddr, Type};
use tokio::net::{TcpListener, UnixListener};

use crate::socket::Socket;

/// Connections that the kernel keeps ready for `accept`: beanstalkd's own number (specification,
/// 1.12).
const BACKLOG: i32 = 1024;

/// One address that clients connect to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Listen {
    /// A TCP address, IPv4 or IPv6. Port 0 lets the system choose one, which is then kept.
    Tcp(SocketAddr),
    /// A Unix stream socket. A stale socket file is replaced; any other file is refused.
    Unix(PathBuf),
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Why an address cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The system says no.
    #[error("cannot listen on {listen}: {source}")]
    System {
        /// Which address.
        listen: Listen,
        /// Its reason.
        source: io::Error,
    },
    /// Something answers on that socket.
    #[error("cannot listen on {0}: another process does")]
    InUse(Listen),
    /// A file that is no socket is in the way.
    #[error("cannot listen on {0}: a file that is no socket is there; move it away")]
    NoSocket(Listen),
}

/// An address that is ours but does not listen yet: whoever connects is refused.
#[derive(Debug)]
pub(crate) struct Bound {
    listen: Listen,
    socket: socket2::Socket,
}

/// An address that accepts connections.
#[derive(Debug)]
pub(crate) enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// Unix.
    Unix(UnixListener),
}

impl Bound {
    /// Takes the address.
    ///
    /// # Errors
    ///
    /// [`BindError`] names the address and what to do.
    pub(crate) fn new(listen: &Listen) -> Result<Self, BindError> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => BindError::InUse(listen.clone()),
            _ => BindError::System {
                listen: listen.clone(),
                source,
            },
        };
        match listen {
            Listen::Tcp(address) => {
                let (socket, address) = bind_tcp(*address).map_err(failed)?;
                Ok(Self {
                    listen: Listen::Tcp(address),
                    socket,
                })
            }
            Listen::Unix(path) => {
                remove_stale(path, listen)?;
                let socket = bind_unix(path).map_err(failed)?;
                Ok(Self {
                    listen: listen.clone(),
                    socket,
                })
            }
        }
    }

    /// The address, with the port that the system chose.
    pub(crate) fn listen(&self) -> &Listen {
        &self.listen
    }

    /// Begins to accept.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub(crate) fn open(self) -> Result<Listener, BindError> {
        let Self { listen, socket } = self;
        let opened = socket.listen(BACKLOG).and_then(|()| match listen {
            Listen::Tcp(_) => {
                TcpListener::from_std(StdTcpListener::from(socket)).map(Listener::Tcp)
            }
            Listen::Unix(_) => UnixListener::from_std(socket.into()).map(Listener::Unix),
        });
        opened.map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => BindError::InUse(listen.clone()),
            _ => BindError::System { listen, source },
        })
    }
}

impl Listener {
    /// The next connection.
    pub(crate) async fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(listener) => listener
                .accept()
                .await
                .map(|(stream, _)| Socket::Tcp(stream)),
            Self::Unix(listener) => listener
                .accept()
                .await
                .map(|(stream, _)| Socket::Unix(stream)),
        }
    }
}

fn bind_tcp(address: SocketAddr) -> io::Result<(socket2::Socket, SocketAddr)> {
    let domain = Domain::for_address(address);
    let socket = socket2::Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // A restarted node finds its old connections in TIME_WAIT.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // `[::]` means all addresses of both families, `-l ::1` only its own.
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.bind(&address.into())?;
    let bound = socket.local_addr()?.as_socket().unwrap_or(address);
    Ok((socket, bound))
}

fn bind_unix(path: &Path) -> io::Result<socket2::Socket> {
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::unix(path)?)?;
    Ok(socket)
}

/// Removes a socket file that nobody listens on any more: one is left behind at every exit
/// (specification, 8.1 and sharp edge 134).
fn remove_stale(path: &Path, listen: &Listen) -> Result<(), BindError> {
    let Ok(found) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !found.file_type().is_socket() {
        return Err(BindError::NoSocket(listen.clone()));
    }
    if StdUnixStream::connect(path).is_ok() {
        return Err(BindError::InUse(listen.clone()));
    }
    fs::remove_file(path).map_err(|source| BindError::System {
        listen: listen.clone(),
        source,
    })
}
