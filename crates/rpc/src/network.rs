use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::BoxStream};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream, lookup_host},
    time::timeout,
};
use tonic::transport::server::{Connected, TcpIncoming};

/// How long a connection may take to come up, name resolution included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Connections as they come in.
pub type Incoming = BoxStream<'static, io::Result<PeerStream>>;

/// What carries bytes between nodes: TCP in a cluster, something made up in a simulation.
pub trait Network: Send + Sync + 'static {
    /// A connection to `address` (host:port), its name resolved anew. A host that is alive and
    /// says that no process listens is [`io::ErrorKind::ConnectionRefused`]; silence is another
    /// error, within a second.
    fn connect(&self, address: &str) -> BoxFuture<'static, io::Result<PeerStream>>;

    /// Listens on `address`.
    ///
    /// # Errors
    ///
    /// The port can't be had.
    fn listen(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<Incoming>>;
}

/// The network of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tcp;

impl Network for Tcp {
    fn connect(&self, address: &str) -> BoxFuture<'static, io::Result<PeerStream>> {
        let address = address.to_owned();
        async move {
            timeout(CONNECT_TIMEOUT, resolve_and_connect(&address))
                .await
                .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        }
        .boxed()
    }

    fn listen(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<Incoming>> {
        async move {
            let port = TcpListener::bind(address).await?;
            let incoming = TcpIncoming::from(port).with_nodelay(Some(true));
            Ok(incoming.map(|stream| stream.map(PeerStream::new)).boxed())
        }
        .boxed()
    }
}

/// Takes the first of the name's addresses that answers.
async fn resolve_and_connect(address: &str) -> io::Result<PeerStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in lookup_host(address).await? {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(PeerStream::new(stream));
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

trait Duplex: AsyncRead + AsyncWrite + Send {}
impl<S: AsyncRead + AsyncWrite + Send> Duplex for S {}

/// One connection between nodes.
pub struct PeerStream(Pin<Box<dyn Duplex>>);

impl PeerStream {
    /// Over any stream of bytes.
    pub fn new(stream: impl AsyncRead + AsyncWrite + Send + 'static) -> Self {
        Self(Box::pin(stream))
    }
}

impl AsyncRead for PeerStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.as_mut().poll_read(context, buffer)
    }
}

impl AsyncWrite for PeerStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.as_mut().poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.as_mut().poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.as_mut().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.as_mut().poll_shutdown(context)
    }
}

/// Nothing of a connection matters to a service: who sends stands in each request.
impl Connected for PeerStream {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}
