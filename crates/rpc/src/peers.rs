use std::{collections::HashMap, io, sync::Arc, time::Duration};

use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tonic::{
    Request, Status,
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Channel, Endpoint, Server, Uri},
};
use trellis_types::NodeId;

use crate::{
    MESSAGE_BYTES_MAX, Network, SharedIdentity, Tcp,
    pb::{peer_client::PeerClient, raft_client::RaftClient},
};

/// A silent connection is asked after this time, and given up after the same time again.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// A stream never waits for window updates while this much is in flight: several full entries.
const STREAM_WINDOW_BYTES: u32 = 16 * 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 32 * 1024 * 1024;

/// What a connection is for. Each has its own, so that no load delays what must be quick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Log entries.
    Append,
    /// Heartbeats, votes, leadership transfers.
    Heartbeat,
    /// Snapshots.
    Snapshot,
    /// Batches and pings between origins and the leader.
    Forward,
    /// Everything else: reads, hello, membership.
    Control,
}

/// A connection that signs every request with who sends it and for whom it is meant.
pub type PeerChannel = InterceptedService<Channel, Signature>;

/// The connections of this node to others: one per member and [`Lane`], opened when first used,
/// opened again (and the name resolved again) by the first request after it broke.
#[derive(Clone)]
pub struct Peers {
    identity: SharedIdentity,
    network: Arc<dyn Network>,
    channels: Arc<Mutex<HashMap<(NodeId, Lane), Known>>>,
}

/// A connection and the address that it goes to.
type Known = (String, Channel);

impl Peers {
    /// No connection yet; they will be TCP.
    pub fn new(identity: SharedIdentity) -> Self {
        Self::over(identity, Arc::new(Tcp))
    }

    /// No connection yet; they will go over `network`.
    pub fn over(identity: SharedIdentity, network: Arc<dyn Network>) -> Self {
        Self {
            identity,
            network,
            channels: Arc::default(),
        }
    }

    /// Who this node is to others.
    pub fn identity(&self) -> &SharedIdentity {
        &self.identity
    }

    /// The connection to `node` at `address` (host:port) for `lane`. `NodeId(0)` asks whoever is
    /// there; only methods that are exempt from the target check answer it.
    ///
    /// # Errors
    ///
    /// INVALID_ARGUMENT if `address` is no host:port.
    pub fn channel(&self, node: NodeId, address: &str, lane: Lane) -> Result<PeerChannel, Status> {
        let channel = if node == NodeId::default() {
            self.connection(address)?
        } else {
            let mut channels = self.channels.lock();
            match channels.get(&(node, lane)) {
                Some((known, channel)) if known == address => channel.clone(),
                _ => {
                    let channel = self.connection(address)?;
                    channels.insert((node, lane), (address.to_owned(), channel.clone()));
                    channel
                }
            }
        };
        let signature = Signature {
            identity: self.identity.clone(),
            to: node,
        };
        Ok(InterceptedService::new(channel, signature))
    }

    /// A client of the member's Raft service.
    ///
    /// # Errors
    ///
    /// As [`Self::channel`].
    pub fn raft(
        &self,
        node: NodeId,
        address: &str,
        lane: Lane,
    ) -> Result<RaftClient<PeerChannel>, Status> {
        Ok(RaftClient::new(self.channel(node, address, lane)?)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX))
    }

    /// A client of the node's Peer service.
    ///
    /// # Errors
    ///
    /// As [`Self::channel`].
    pub fn peer(
        &self,
        node: NodeId,
        address: &str,
        lane: Lane,
    ) -> Result<PeerClient<PeerChannel>, Status> {
        Ok(PeerClient::new(self.channel(node, address, lane)?)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX))
    }

    fn connection(&self, address: &str) -> Result<Channel, Status> {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|_| Status::invalid_argument(format!("`{address}` is not host:port")))?
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        let network = self.network.clone();
        Ok(
            endpoint.connect_with_connector_lazy(tower::service_fn(move |uri: Uri| {
                let address = uri.authority().map(ToString::to_string).unwrap_or_default();
                let connecting = network.connect(&address);
                async move { connecting.await.map(TokioIo::new) }
            })),
        )
    }

    /// Closes the connections to `node` as soon as nothing uses them.
    pub fn forget(&self, node: NodeId) {
        self.channels.lock().retain(|(known, _), _| *known != node);
    }

    /// Whether a new connection to `address` is refused: the host is alive and says that no
    /// process listens (architecture, section 14). Silence, or a host that is away, is `false`.
    /// Takes at most a second.
    pub async fn connect_refused(&self, address: &str) -> bool {
        matches!(self.network.connect(address).await, Err(error) if error.kind() == io::ErrorKind::ConnectionRefused)
    }
}

/// Says in every request who sends it and for whom it is meant.
#[derive(Clone)]
pub struct Signature {
    identity: SharedIdentity,
    to: NodeId,
}

impl Interceptor for Signature {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        self.identity.sign(request.metadata_mut(), self.to)?;
        Ok(request)
    }
}

/// A server whose connections are tuned like those of [`Peers`].
pub fn server() -> Server {
    Server::builder()
        .tcp_nodelay(true)
        // A process that was frozen finds that many requests have been given up meanwhile.
        .http2_max_pending_accept_reset_streams(Some(4_096))
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE))
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::{ClusterId, Identity};

    fn peers() -> Peers {
        Peers::new(SharedIdentity::new(Identity {
            cluster: ClusterId(1),
            node: NodeId(1),
        }))
    }

    #[tokio::test]
    async fn a_process_that_is_gone_is_told_from_a_host_that_is_silent() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        assert!(!peers().connect_refused(&address).await);
        drop(listener);
        assert!(peers().connect_refused(&address).await);
        assert!(!peers().connect_refused("no.such.name.invalid:1").await);
    }

    #[tokio::test]
    async fn a_bad_address_is_an_error_and_no_panic() {
        assert!(
            peers()
                .channel(NodeId(2), "no port or \n rubbish", Lane::Control)
                .is_err()
        );
    }
}
