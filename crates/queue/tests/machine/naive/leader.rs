//! What the leader says.

use trellis_queue::{Event, LeaderCommand, Setting};
use trellis_types::OriginId;

use super::{Naive, Node};

impl Naive {
    pub(super) fn lead(&mut self, command: &LeaderCommand) {
        match command {
            LeaderCommand::OpenOrigin(OriginId { node, run }) => {
                let known = self.nodes.iter().position(|known| known.node == *node);
                if self.retired.contains(node) || known.is_some_and(|at| self.nodes[at].run >= *run)
                {
                    return;
                }
                if let Some(at) = known {
                    let run = self.nodes[at].run;
                    self.end(OriginId { node: *node, run });
                    self.nodes.remove(at);
                }
                self.nodes.push(Node {
                    node: *node,
                    run: *run,
                    open: true,
                    last_seq: 0,
                    suspended: false,
                });
                self.nodes.sort_by_key(|known| known.node);
                self.events.push(Event::Opened(OriginId {
                    node: *node,
                    run: *run,
                }));
            }
            LeaderCommand::SuspendOrigin(origin) => self.set_suspended(*origin, true),
            LeaderCommand::ResumeOrigin(origin) => {
                self.set_suspended(*origin, false);
                self.dispatch();
            }
            LeaderCommand::ExpireOrigin(origin) => self.end(*origin),
            LeaderCommand::Tick => {}
            LeaderCommand::Set(setting) => match *setting {
                Setting::PutsRefused(refused) => self.puts_refused = refused,
                Setting::JobsMax(max) => self.jobs_max = max,
                Setting::JobBytesMax(max) => self.job_bytes_max = max,
                Setting::TubesMax(max) => self.tubes_max = max,
                Setting::WatchNamesMax(max) => self.watch_names_max = max,
                Setting::FeatureLevel(level) => {
                    self.feature_level = self.feature_level.max(level);
                }
            },
            LeaderCommand::RetireNode(node) => {
                if self.retired.contains(node) {
                    return;
                }
                if let Some(known) = self.nodes.iter().find(|known| known.node == *node) {
                    let run = known.run;
                    self.end(OriginId { node: *node, run });
                }
                self.retired.push(*node);
                self.events.push(Event::Retired(*node));
            }
        }
    }

    pub(super) fn set_suspended(&mut self, origin: OriginId, suspended: bool) {
        for known in &mut self.nodes {
            if known.open && (known.node, known.run) == (origin.node, origin.run) {
                known.suspended = suspended;
            }
        }
    }

    pub(super) fn end(&mut self, origin: OriginId) {
        let Some(known) = self
            .nodes
            .iter_mut()
            .find(|n| n.open && (n.node, n.run) == (origin.node, origin.run))
        else {
            return;
        };
        known.open = false;
        known.last_seq = 0;
        known.suspended = false;
        self.waits.retain(|wait| wait.session.origin != origin);
        self.return_holds(|who| who.origin == origin);
        for tube in &mut self.tubes {
            tube.references.retain(|other| *other != origin);
        }
        self.drop_unwanted_tubes();
        self.events.push(Event::Ended(origin));
    }
}
