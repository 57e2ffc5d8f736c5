use std::time::Duration;

use futures::{future::BoxFuture, stream::BoxStream};
use tonic::{Status, Streaming};
use trellis_queue::LeaderCommand;
use trellis_rpc::pb;
use trellis_types::{NodeId, OriginId};

use super::{Core, DoorState};
use crate::membership::CoreView;

/// How long a planned stop waits for the clients' commands under way.
const RELEASE_MAX: Duration = Duration::from_secs(4);

/// What membership sees of a core.
impl CoreView for Core {
    fn leader_heard(&self) -> Option<Duration> {
        self.leader_heard()
    }

    fn is_present(&self, node: NodeId) -> bool {
        self.is_present(node)
    }

    fn clock_report(&self) -> pb::Clock {
        self.clock_report()
    }

    fn learn_clock(&self, node: NodeId, clock: pb::Clock) {
        self.learn_clock(node, clock);
    }

    fn origin(&self) -> Option<OriginId> {
        match *self.0.doors.borrow() {
            DoorState::Open { origin } => Some(origin),
            DoorState::Closed { .. } => None,
        }
    }

    fn why_closed(&self) -> String {
        match *self.0.doors.borrow() {
            DoorState::Open { .. } => String::new(),
            DoorState::Closed { why } => why.to_owned(),
        }
    }

    fn shut(&self, why: Option<&'static str>) {
        self.shut(why);
    }

    fn forward(
        &self,
        from: NodeId,
        up: Streaming<pb::ForwardUp>,
    ) -> Result<BoxStream<'static, Result<pb::ForwardDown, Status>>, Status> {
        Ok(self.forward(Some(from), up))
    }

    fn read_index(&self) -> BoxFuture<'_, Result<pb::ReadIndexReply, Status>> {
        Box::pin(self.read_index())
    }

    fn census(&self, request: pb::CensusRequest) -> BoxFuture<'_, Result<pb::CensusReply, Status>> {
        let reply = self.census(&request);
        Box::pin(async move { reply })
    }

    fn propose(&self, commands: Vec<LeaderCommand>) -> BoxFuture<'_, Result<u64, String>> {
        Box::pin(async move {
            self.propose(commands)
                .await
                .map_err(|error| error.to_string())
        })
    }

    fn refuses_puts(&self) -> bool {
        self.0.with_origin(|origin| origin.draining)
    }

    fn ready_within(&self) -> Duration {
        self.0.settings.ready_within()
    }

    fn close_doors(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.release_clients(RELEASE_MAX))
    }
}
