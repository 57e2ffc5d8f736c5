//! A disk that fails ends the node, in words and with a code of its own (I19).

use std::time::Duration;

use anyhow::{Result, bail};
use trellis_checker::history::NodeEvent;

use super::{
    Scene, Told,
    cluster::{Cluster, NODES},
    told, within,
};

/// What a node ends with when its disk failed.
const DISK_FAILED: i32 = 74;

/// How long a node may take to notice and to end.
pub(super) const STOPS_WITHIN: Duration = Duration::from_secs(15);

/// What was seen of a node that stopped.
pub(super) struct Stopped {
    pub(super) code: Option<i32>,
    /// Its last line, and how often it said so.
    pub(super) last: String,
    pub(super) lines: usize,
}

/// Waits until a rule strikes, and then until the node has ended.
pub(super) fn stops(
    scene: &Scene,
    cluster: &mut Cluster,
    told: &told::Told,
    node: usize,
    fault: u32,
    rule: &str,
) -> Result<Stopped> {
    let before = cluster.disk(node).strikes()?;
    cluster.disk(node).tell(rule)?;
    let struck = within("the fault to strike", STOPS_WITHIN, || {
        Ok(cluster.disk(node).strikes()? > before)
    });
    if let Err(error) = struck {
        bail!("{error} ({rule})\n{}", cluster.last_words());
    }
    told.node(node, NodeEvent::DiskFailed);
    told.broken(fault, rule, &[node]);
    let status = cluster.wait_for_end(node, STOPS_WITHIN)?;
    told.node(node, NodeEvent::Killed);
    let log = cluster.log(node);
    let said: Vec<&str> = log
        .lines()
        .filter(|line| line.starts_with("trellis: "))
        .collect();
    let stopped = Stopped {
        code: status.code(),
        last: log.lines().last().unwrap_or_default().to_owned(),
        lines: said.len(),
    };
    scene.say(format!("{rule}: node {node} ended: {status}: {said:#?}"));
    Ok(stopped)
}

/// Starts a node again and waits until it is ready.
pub(super) fn returns(
    cluster: &mut Cluster,
    told: &told::Told,
    node: usize,
    fault: u32,
) -> Result<()> {
    cluster.disk(node).tell("off all")?;
    cluster.start_node(node)?;
    cluster.wait_until_ready(&[node])?;
    told.node(node, NodeEvent::Started);
    told.mended(fault, "started again", &[node]);
    Ok(())
}

impl Stopped {
    /// What is wrong with how it stopped.
    pub(super) fn judged(&self, told: Told, what: &str) -> Told {
        let (code, last, lines) = (self.code, &self.last, self.lines);
        told.shows(
            code == Some(DISK_FAILED),
            format!("{what}: it ended with {code:?} instead of {DISK_FAILED}"),
        )
        .shows(
            lines == 1 && last.starts_with("trellis: "),
            format!("{what}: {lines} lines instead of one at the end, the last: {last}"),
        )
    }
}

/// One fsync of the log fails and all later ones would succeed.
pub(super) fn sync_error(scene: &Scene) -> Result<Told> {
    failing(scene, "on sync fail EIO path=log/* times=1", false)
}

/// One fsync of the state fails.
pub(super) fn state_sync_error(scene: &Scene) -> Result<Told> {
    failing(scene, "on sync fail EIO path=state/* times=1", true)
}

fn failing(scene: &Scene, rule: &str, snapshots: bool) -> Result<Told> {
    let mut cluster = Cluster::start(scene.plan.clone())?;
    let args = &scene.args;
    let told = told::Told::begin(&cluster, scene.name, args.seed, &args.profile, 2)?;
    let mut seen = Vec::new();
    for leads in [true, false] {
        told.wait_for_answers(&cluster, 200)?;
        let leader = cluster.leader(&[0, 1, 2])?;
        let node = if leads { leader } else { (leader + 1) % NODES };
        let admin = cluster.admin(node);
        let asks = snapshots.then(|| {
            std::thread::spawn(move || {
                // The rule is there before the state is flushed for it.
                std::thread::sleep(Duration::from_millis(200));
                post(admin, "/v1/snapshot")
            })
        });
        let stopped = stops(scene, &mut cluster, &told, node, 27, rule)?;
        if let Some(asks) = asks {
            // Its node died meanwhile.
            let _ = asks.join();
        }
        let gap = told.wait_for_answers(&cluster, 50)?;
        returns(&mut cluster, &told, node, 27)?;
        seen.push((leads, stopped, gap));
    }
    told.wait_for_answers(&cluster, 100)?;
    let mut result = Told::of(told.end(&cluster)?);
    for (leads, stopped, gap) in seen {
        let who = if leads { "leader" } else { "follower" };
        result = result
            .figure(&format!("{who}_exit_code"), stopped.code)
            .figure(&format!("{who}_last_line"), stopped.last.clone())
            .figure(
                &format!("{who}_50_answers_after_ms"),
                gap.as_millis() as u64,
            );
        result = stopped.judged(result, who);
    }
    Ok(result)
}

/// An order to an admin port.
pub(super) fn post(address: std::net::SocketAddr, path: &str) -> std::io::Result<String> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: admin\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
