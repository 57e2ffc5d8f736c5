use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream, tcp},
    runtime::Runtime,
    sync::{mpsc, watch},
    time::{Instant, sleep, sleep_until},
};
use trellis_testkit::network::{Network, NodeProcess};

use super::{CALLER_OFFSET, PROXY_OFFSET, host};

/// Pieces of a stream that are on their way at once; a slow link pushes back beyond that.
const PIECES_MAX: usize = 64;

/// Bytes of a piece at most.
const PIECE_BYTES: usize = 16 * 1024;

/// How a link between two nodes behaves, in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// What every piece is late at least.
    pub delay: Duration,
    /// What it may be late beyond that; drawn for each piece, order is kept.
    pub jitter: Duration,
    /// How much gets through; `None` as much as there is.
    pub bytes_per_second: Option<u64>,
}

/// Proxies in front of all peer ports. Who calls is known by the address it calls from; the call
/// goes on from an address that stands for it, so that packet filters still tell nodes apart.
pub struct Links {
    runtime: Runtime,
    shared: Arc<Shared>,
}

struct Shared {
    /// By caller and called.
    links: Vec<Vec<Link>>,
    /// Where each node listens now.
    hosts: Vec<AtomicU8>,
    base: [u8; 3],
}

struct Link {
    manner: watch::Sender<Manner>,
    /// Counts up; each live stream that sees it change is cut.
    cut: watch::Sender<u64>,
    bytes: AtomicU64,
    streams: AtomicU64,
}

impl Links {
    /// Listens in front of `nodes` peer ports.
    pub(super) fn lay(network: &Network, nodes: usize) -> Result<Self> {
        let link = || Link {
            manner: watch::Sender::default(),
            cut: watch::Sender::default(),
            bytes: AtomicU64::new(0),
            streams: AtomicU64::new(0),
        };
        let row = || (0..nodes).map(|_| link()).collect();
        let [a, b, c, _] = network.own_address().octets();
        let shared = Arc::new(Shared {
            links: (0..nodes).map(|_| row()).collect(),
            hosts: (0..nodes).map(|node| AtomicU8::new(host(node))).collect(),
            base: [a, b, c],
        });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("links")
            .enable_all()
            .build()?;
        for called in 0..nodes {
            let address = shared.at(host(called) + PROXY_OFFSET, NodeProcess::PEER_PORT);
            let listener = runtime
                .block_on(TcpListener::bind(address))
                .with_context(|| format!("a proxy at {address}"))?;
            runtime.spawn(accept(listener, called, Arc::clone(&shared)));
        }
        Ok(Self { runtime, shared })
    }

    /// From now on the node listens at another host.
    pub(super) fn moved(&self, node: usize, to: u8) {
        self.shared.hosts[node].store(to, Ordering::Relaxed);
    }

    /// From now on the link between two nodes behaves so, whoever called whom.
    pub fn set(&self, one: usize, other: usize, manner: Manner) {
        for (caller, called) in [(one, other), (other, one)] {
            self.shared.links[caller][called]
                .manner
                .send_replace(manner);
        }
    }

    /// Breaks all streams between two nodes; new ones can be made. How many there were.
    pub fn cut(&self, one: usize, other: usize) -> u64 {
        let mut streams = 0;
        for (caller, called) in [(one, other), (other, one)] {
            let link = &self.shared.links[caller][called];
            streams += link.streams.load(Ordering::Relaxed);
            link.cut.send_modify(|count| *count += 1);
        }
        streams
    }

    /// Bytes that went between two nodes so far.
    pub fn bytes(&self, one: usize, other: usize) -> u64 {
        let of = |caller: usize, called: usize| {
            self.shared.links[caller][called]
                .bytes
                .load(Ordering::Relaxed)
        };
        of(one, other) + of(other, one)
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        // Streams end with the tasks that carry them.
        let ended = tokio::runtime::Builder::new_current_thread().build();
        if let Ok(empty) = ended {
            std::mem::replace(&mut self.runtime, empty).shutdown_background();
        }
    }
}

impl Shared {
    fn at(&self, host: u8, port: u16) -> SocketAddr {
        let [a, b, c] = self.base;
        SocketAddr::from(([a, b, c, host], port))
    }

    /// The node whose place has this address.
    fn caller(&self, address: SocketAddr) -> Option<usize> {
        let nodes = self.links.len();
        (0..nodes).find(|node| self.at(host(*node), 0).ip() == address.ip())
    }
}

async fn accept(listener: TcpListener, called: usize, shared: Arc<Shared>) {
    loop {
        let Ok((stream, from)) = listener.accept().await else {
            sleep(Duration::from_millis(10)).await;
            continue;
        };
        let Some(caller) = shared.caller(from) else {
            continue;
        };
        tokio::spawn(carry(stream, caller, called, Arc::clone(&shared)));
    }
}

/// Carries one stream until either side ends it or the link is cut.
async fn carry(stream: TcpStream, caller: usize, called: usize, shared: Arc<Shared>) {
    let onward = async {
        let socket = TcpSocket::new_v4()?;
        socket.bind(shared.at(host(caller) + CALLER_OFFSET, 0))?;
        let to = shared.hosts[called].load(Ordering::Relaxed);
        let to = shared.at(to, NodeProcess::PEER_PORT);
        socket.connect(to).await
    };
    // A refused call is refused here by closing: the caller sees a reset, as it would there.
    let Ok(Ok(onward)) = tokio::time::timeout(Duration::from_secs(5), onward).await else {
        let _ = stream.set_zero_linger();
        return;
    };
    let _ = (stream.set_nodelay(true), onward.set_nodelay(true));
    let link = &shared.links[caller][called];
    let mut cut = link.cut.subscribe();
    cut.mark_unchanged();
    link.streams.fetch_add(1, Ordering::Relaxed);
    let _ = (stream.set_zero_linger(), onward.set_zero_linger());
    let (from_caller, to_caller) = stream.into_split();
    let (from_called, to_called) = onward.into_split();
    tokio::select! {
        () = pour(from_caller, to_called, link) => {}
        () = pour(from_called, to_caller, link) => {}
        _ = cut.changed() => {}
    }
    link.streams.fetch_sub(1, Ordering::Relaxed);
}

/// One direction: read, wait as long as the link demands, write.
async fn pour(mut from: tcp::OwnedReadHalf, mut to: tcp::OwnedWriteHalf, link: &Link) {
    let (send, mut receive) = mpsc::channel::<(Instant, Vec<u8>)>(PIECES_MAX);
    let read = async {
        let mut bytes = vec![0; PIECE_BYTES];
        let mut last = Instant::now();
        while let Ok(count @ 1..) = from.read(&mut bytes).await {
            let manner = *link.manner.borrow();
            let jitter = rand::random_range(0..=manner.jitter.as_micros().min(1 << 40) as u64);
            let due = Instant::now() + manner.delay + Duration::from_micros(jitter);
            last = last.max(due);
            if send.send((last, bytes[..count].to_vec())).await.is_err() {
                return;
            }
        }
        drop(send);
    };
    let write = async {
        while let Some((due, piece)) = receive.recv().await {
            sleep_until(due).await;
            let limit = link.manner.borrow().bytes_per_second;
            if let Some(limit) = limit {
                let time = piece.len() as f64 / limit.max(1) as f64;
                sleep(Duration::from_secs_f64(time)).await;
            }
            if to.write_all(&piece).await.is_err() {
                return;
            }
            link.bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
        }
    };
    // When the reader has seen the end, what it has read is still written.
    tokio::join!(read, write);
}
