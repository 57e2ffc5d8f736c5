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
            .get(&tube)
            .is_some_and(|tube| !tube.buried.is_empty());
        self.kick_all(tube, bound, of_buried, out)
    }

    /// Makes up to `bound` jobs of a tube ready: of the buried ones, oldest burial first, or of the
    /// delayed ones, soonest first. A kick of many is carried out in such portions.
    pub(super) fn kick_portion(
        &mut self,
        tube: &TubeName,
        bound: u32,
        of_buried: bool,
        out: &mut Outcome,
    ) -> Answer {
        match self.names.get(tube).copied() {
            Some(tube) => self.kick_all(tube, bound, of_buried, out),
            None => Answer::Kicked(0),
        }
    }

    fn kick_all(&mut self, tube: TubeId, bound: u32, of_buried: bool, out: &mut Outcome) -> Answer {
        let mut kicked = 0_u32;
        while kicked < bound {
            let next = self.tubes.get(&tube).and_then(|tube| {
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
        Answer::Kicked(kicked)
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
