use trellis_types::{JobId, TubeName};

use super::{
    Machine,
    jobs::{Job, Standing},
};
use crate::{Answer, Outcome, TubeId};

impl Machine {
    /// Makes up to `bound` buried jobs of a tube ready, oldest burial first; only if there is none
    /// at all, up to `bound` delayed ones, soonest first. Each is offered to waiters before the
    /// next is kicked.
    ///
    /// Source: protocol specification, 5.11.
    pub(super) fn kick(&mut self, tube: &TubeName, bound: u32, out: &mut Outcome) -> Answer {
        let Some(tube) = self.names.get(tube).copied() else {
            return Answer::Kicked(0);
        };
        let of_buried = self
            .tubes
            .get(tube)
            .is_some_and(|tube| !tube.buried.is_empty());
        Answer::Kicked(self.kick_all(tube, bound, of_buried, out))
    }

    /// Makes up to `bound` jobs of a tube ready: of the buried ones, oldest burial first, or of the
    /// delayed ones, soonest first. A kick of many is carried out in such portions. The first one's
    /// answer tells how many there are in all: what is buried again meanwhile is no part of the kick.
    pub(super) fn kick_portion(
        &mut self,
        tube: &TubeName,
        bound: u32,
        of_buried: bool,
        out: &mut Outcome,
    ) -> Answer {
        let Some(id) = self.names.get(tube).copied() else {
            return Answer::KickedPortion { count: 0, left: 0 };
        };
        let count = self.kick_all(id, bound, of_buried, out);
        // The tube itself may have gone with its last job.
        let left = self.tubes.get(id).map_or(0, |tube| match of_buried {
            true => tube.buried.len(),
            false => tube.delayed.len(),
        });
        Answer::KickedPortion {
            count,
            left: u32::try_from(left).unwrap_or(u32::MAX),
        }
    }

    /// How many were kicked.
    fn kick_all(&mut self, tube: TubeId, bound: u32, of_buried: bool, out: &mut Outcome) -> u32 {
        let mut kicked = 0_u32;
        while kicked < bound {
            let next = self.tubes.get(tube).and_then(|tube| {
                if of_buried {
                    tube.buried.first_key_value().map(|(_, job)| *job)
                } else {
                    tube.delayed.first().map(|(_, job)| *job)
                }
            });
            let Some(job) = next else { break };
            self.make_ready_and(job, count_kick, out);
            kicked = kicked.saturating_add(1);
        }
        kicked
    }

    /// Makes one buried or delayed job ready, of whatever tube.
    ///
    /// Source: protocol specification, 5.12.
    pub(super) fn kick_job(&mut self, id: JobId, out: &mut Outcome) -> Answer {
        match self.jobs.get(id).map(|job| job.standing) {
            Some(Standing::Buried(_) | Standing::Delayed(_)) => {
                self.make_ready_and(id, count_kick, out);
                Answer::KickedJob
            }
            Some(Standing::Ready | Standing::Reserved) | None => Answer::NotFound,
        }
    }
}

fn count_kick(job: &mut Job) {
    job.kicks = job.kicks.saturating_add(1);
}
