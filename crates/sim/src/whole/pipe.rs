use std::{
    fmt, io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use trellis_beanstalk::Stream;

use super::net::{Net, PipeId};

/// One end of a connection, held by a process.
pub(super) struct End {
    net: Net,
    pipe: PipeId,
    /// 0 for who connected, 1 for who was connected to.
    side: usize,
}

impl End {
    pub(super) fn new(net: Net, pipe: PipeId, side: usize) -> Self {
        Self { net, pipe, side }
    }
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "End({}.{})", self.pipe, self.side)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.net.close(self.pipe, self.side);
    }
}

impl AsyncRead for End {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut bytes = BytesMut::new();
        match self
            .net
            .read(self.pipe, self.side, buffer.remaining(), &mut bytes)
        {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self
                .net
                .poll_readable(self.pipe, self.side, context)
                .map(Ok),
            Err(error) => Poll::Ready(Err(error)),
            Ok(_) => {
                buffer.put_slice(&bytes);
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl AsyncWrite for End {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.net.write(self.pipe, self.side, bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let ready = self.net.poll_writable(self.pipe, self.side, context);
                debug_assert!(ready.is_pending(), "nothing happens in between");
                Poll::Pending
            }
            other => Poll::Ready(other),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.net.shut(self.pipe, self.side);
        Poll::Ready(Ok(()))
    }
}

impl Stream for End {
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.net.write(self.pipe, self.side, bytes)
    }

    fn try_read(&self, buffer: &mut BytesMut) -> io::Result<usize> {
        let room = buffer.capacity() - buffer.len();
        self.net.read(self.pipe, self.side, room, buffer)
    }

    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        self.net.poll_readable(self.pipe, self.side, context)
    }

    fn poll_writable(&self, context: &mut Context<'_>) -> Poll<()> {
        self.net.poll_writable(self.pipe, self.side, context)
    }

    fn poll_hung_up(&self, context: &mut Context<'_>) -> Poll<bool> {
        self.net.poll_hung_up(self.pipe, self.side, context)
    }

    fn poll_broken(&self, context: &mut Context<'_>) -> Poll<()> {
        self.net.poll_broken(self.pipe, self.side, context)
    }

    fn farewell(&self) {
        self.net.shut(self.pipe, self.side);
    }
}

/// What the door is given.
pub(super) fn door_stream(end: End) -> Arc<dyn Stream> {
    Arc::new(end)
}
