use std::{io, net::SocketAddr, time::Duration};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use tokio::time::timeout;
use trellis_rpc::{Incoming, Network, PeerStream};

use super::net::{HostId, Net, Port};

/// As for TCP.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A node's way to others: over the world's network instead of the system's.
pub(super) struct Roads {
    net: Net,
    host: HostId,
}

impl Roads {
    pub(super) fn new(net: Net, host: HostId) -> Self {
        Self { net, host }
    }
}

impl Network for Roads {
    fn connect(&self, address: &str) -> BoxFuture<'static, io::Result<PeerStream>> {
        let name = address.split(':').next().unwrap_or_default();
        let connecting = self.net.connect(self.host, name, Port::Peers);
        async move {
            match timeout(CONNECT_TIMEOUT, connecting).await {
                Ok(Ok(end)) => Ok(PeerStream::new(end?)),
                Ok(Err(_)) => Err(io::ErrorKind::ConnectionReset.into()),
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            }
        }
        .boxed()
    }

    fn listen(&self, _: SocketAddr) -> BoxFuture<'static, io::Result<Incoming>> {
        let listening = self.net.listen(self.host, Port::Peers);
        let incoming = stream::unfold(listening, |mut listening| async move {
            let end = listening.recv().await?;
            Some((Ok(PeerStream::new(end)), listening))
        });
        async move { Ok(incoming.boxed()) }.boxed()
    }
}
