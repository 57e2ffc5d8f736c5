use std::{
    collections::BTreeMap,
    fmt::Debug,
    io,
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use trellis_testkit::process::Cluster;
use trellis_wire::beanstalk::{Reply, Request};

use crate::Client;

/// Who leads, and who follows.
#[derive(Clone, Debug)]
pub struct Roles {
    /// The node that leads.
    pub leader: u16,
    /// The others.
    pub followers: Vec<u16>,
}

impl Roles {
    /// Asks every node's statistics until they agree on one leader.
    ///
    /// # Panics
    ///
    /// They do not agree within 30 s; it shows what they said last.
    pub fn of(cluster: &Cluster) -> Self {
        let nodes = (0..cluster.nodes()).map(|node| (node, cluster.address(node)));
        Self::among(&nodes.collect::<Vec<_>>())
    }

    /// As [`Self::of`], asking only these, because the others are dead or silent, or stand elsewhere.
    ///
    /// # Panics
    ///
    /// As [`Self::of`].
    pub fn among(nodes: &[(u16, SocketAddr)]) -> Self {
        wait_for("one leader", || {
            let said: Vec<_> = nodes
                .iter()
                .map(|(node, address)| (*node, stats(*address)))
                .collect();
            let leads = |stats: &BTreeMap<String, String>| {
                Some(stats.get("trellis-node")? == stats.get("trellis-leader")?)
            };
            let known: Option<Vec<(u16, bool)>> = said
                .iter()
                .map(|(node, stats)| Some((*node, leads(stats.as_ref().ok()?)?)))
                .collect();
            let Some(known) = known else { return Err(said) };
            let (leaders, followers): (Vec<_>, Vec<_>) = known.into_iter().partition(|it| it.1);
            match leaders[..] {
                [(leader, _)] => Ok(Self {
                    leader,
                    followers: followers.into_iter().map(|it| it.0).collect(),
                }),
                _ => Err(said),
            }
        })
    }
}

/// A server's statistics.
///
/// # Errors
///
/// It can't be reached, or answers something else.
pub fn stats(address: SocketAddr) -> io::Result<BTreeMap<String, String>> {
    match Client::connect(address)?.ask(&Request::Stats)? {
        Reply::Ok(yaml) => Ok(pairs(&String::from_utf8_lossy(&yaml))),
        other => Err(io::Error::other(format!("stats: {other:?}"))),
    }
}

/// The lines `key: value` of a YAML mapping, without quotes.
pub(crate) fn pairs(yaml: &str) -> BTreeMap<String, String> {
    let pairs = yaml.lines().filter_map(|line| line.split_once(": "));
    pairs
        .map(|(key, value)| (key.to_owned(), value.trim_matches('"').to_owned()))
        .collect()
}

/// Looks until it finds.
///
/// # Panics
///
/// It finds nothing within 30 s; it shows what it saw last.
pub fn wait_for<T, E: Debug>(what: &str, mut look: impl FnMut() -> Result<T, E>) -> T {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        match look() {
            Ok(found) => return found,
            Err(seen) => assert!(Instant::now() < until, "no {what}; last seen: {seen:#?}"),
        }
        thread::sleep(Duration::from_millis(20));
    }
}
