use futures::future::join_all;
use trellis_queue::ServerView;
use trellis_rpc::pb;
use trellis_types::{NodeId, TubeName};

use crate::{
    Counters, ServerStats,
    mind::{Inner, Running},
};

/// What the front ends of all nodes that answered count.
#[derive(Debug, Default)]
pub(crate) struct Census {
    counters: Counters,
    pub(crate) using: u64,
    pub(crate) watching: u64,
    /// Members that did not answer in time, by name. Never summed as zero without being named.
    silent: Vec<String>,
}

/// Asks all members at once, with one deadline.
pub(crate) async fn gather(core: &Inner, running: &Running, tube: Option<&TubeName>) -> Census {
    let own = core.census(tube);
    let members = running.consensus.membership().members;
    let others = members.into_values().filter(|member| member.id != core.me);
    let asked = others.map(|member| {
        let request = pb::CensusRequest {
            tube: tube.map(|tube| tube.as_str().to_owned().into_bytes().into()),
        };
        let reply = running.neighbours.census(member.id, request);
        async move {
            match tokio::time::timeout(core.settings.census_timeout, reply).await {
                Ok(Ok(reply)) => Ok(reply),
                _ => Err(member.name),
            }
        }
    });
    let mut census = Census::default();
    census.add(&own);
    for answer in join_all(asked).await {
        match answer {
            Ok(reply) => census.add(&reply),
            Err(name) => census.silent.push(name),
        }
    }
    census.silent.sort();
    census
}

impl Census {
    fn add(&mut self, reply: &pb::CensusReply) {
        self.counters.add(&Counters::from(reply));
        self.using = self.using.saturating_add(reply.using);
        self.watching = self.watching.saturating_add(reply.watching);
    }

    pub(crate) fn server_stats(
        self,
        core: &Inner,
        running: &Running,
        view: ServerView,
    ) -> ServerStats {
        let membership = running.consensus.membership();
        let leader = leader_of(core.me, *running.consensus.role().borrow());
        let name = |id: NodeId| {
            membership
                .members
                .get(&id)
                .map(|member| member.name.clone())
        };
        ServerStats {
            view,
            counters: self.counters,
            body_bytes_max: core.settings.body_bytes_max,
            draining: core.with_origin(|origin| origin.draining),
            uptime_seconds: crate::since(core.started).as_secs(),
            node: name(core.me).unwrap_or_else(|| core.me.to_string()),
            leader: leader.and_then(name),
            members: membership.members.len() as u64,
            silent: self.silent,
        }
    }
}

fn leader_of(me: NodeId, role: trellis_consensus::Role) -> Option<NodeId> {
    use trellis_consensus::Role;
    match role {
        Role::Leader { .. } => Some(me),
        Role::Follower { leader, .. } | Role::Learner { leader, .. } => leader,
        Role::Candidate { .. } | Role::Stopped => None,
    }
}

impl From<&pb::CensusReply> for Counters {
    fn from(reply: &pb::CensusReply) -> Self {
        let mut commands = [0; 22];
        for (mine, theirs) in commands.iter_mut().zip(&reply.commands) {
            *mine = *theirs;
        }
        Self {
            commands,
            connections: reply.connections,
            producers: reply.producers,
            workers: reply.workers,
            connections_total: reply.connections_total,
        }
    }
}

impl Counters {
    pub(crate) fn reply(&self, (using, watching): (u64, u64)) -> pb::CensusReply {
        pb::CensusReply {
            commands: self.commands.to_vec(),
            connections: self.connections,
            producers: self.producers,
            workers: self.workers,
            connections_total: self.connections_total,
            using,
            watching,
        }
    }
}
