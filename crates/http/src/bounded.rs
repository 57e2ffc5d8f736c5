use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::serve::Listener;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Sleep, sleep},
};

/// Connections of the admin port: a handful of probes, scrapers and people, with room to spare.
const CONNECTIONS_MAX: usize = 256;

/// How long one connection may live: longer than any request takes. Probes and scrapers that keep
/// theirs open come back.
const LIFETIME: Duration = Duration::from_secs(120);

/// After an accept that failed for want of something.
const SHORT_OF: Duration = Duration::from_millis(100);

/// Accepts connections within bounds: one too many is closed, one that lives too long as well, so
/// that nobody can keep a probe out by holding connections.
pub(crate) struct Bounded {
    listener: TcpListener,
    slots: Arc<Semaphore>,
    lifetime: Duration,
}

/// A connection with its place and its end.
pub(crate) struct Slot {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

impl Bounded {
    pub(crate) fn new(listener: TcpListener) -> Self {
        Self::with_bounds(listener, CONNECTIONS_MAX, LIFETIME)
    }

    fn with_bounds(listener: TcpListener, connections_max: usize, lifetime: Duration) -> Self {
        let slots = Arc::new(Semaphore::new(connections_max));
        Self {
            listener,
            slots,
            lifetime,
        }
    }
}

impl Listener for Bounded {
    type Io = Slot;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Slot, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    if let Ok(place) = Arc::clone(&self.slots).try_acquire_owned() {
                        let end = Box::pin(sleep(self.lifetime));
                        let slot = Slot {
                            stream,
                            end,
                            _place: place,
                        };
                        return (slot, address);
                    }
                }
                Err(_) => sleep(SHORT_OF).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl AsyncRead for Slot {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Slot {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use axum::{Router, routing::get};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        time::timeout,
    };

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    async fn ask(stream: &mut TcpStream) -> String {
        let request = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        let mut text = String::new();
        // A connection that is one too many may be reset before all is written.
        if stream.write_all(request).await.is_ok() {
            let read = timeout(PATIENCE, stream.read_to_string(&mut text)).await;
            drop(read.expect("an end in time"));
        }
        text
    }

    #[tokio::test]
    async fn whoever_holds_all_connections_keeps_others_out_only_for_their_lifetime() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let bounded = Bounded::with_bounds(listener, 2, Duration::from_millis(300));
        let routes = Router::new().route("/", get(|| async { "hello" }));
        tokio::spawn(async move { axum::serve(bounded, routes).await });

        let mut silent = Vec::new();
        for _ in 0..2 {
            silent.push(TcpStream::connect(address).await.expect("it listens"));
        }
        let mut third = TcpStream::connect(address).await.expect("it listens");
        assert_eq!(ask(&mut third).await, "", "one too many is closed");

        let answered = timeout(PATIENCE, async {
            loop {
                let mut later = TcpStream::connect(address).await.expect("it listens");
                let said = ask(&mut later).await;
                if said.ends_with("hello") {
                    return;
                }
            }
        });
        answered.await.expect("the silent ones have to go");
    }
}
