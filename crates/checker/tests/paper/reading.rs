//! Looking at the machine: while it runs, and when everything is over.

use trellis_checker::history::{
    Call, FinalState, JobState, JobStats, MILLI, Record, Reply, SECOND, TubeStats,
};
use trellis_queue::{JobView, LeaderCommand, Machine};
use trellis_types::{JobId, Timestamp, TubeName};

use crate::queue::{Bug, Paper};

impl Paper {
    /// A read, of the present.
    pub(super) fn look(&mut self, call: &Call) -> Reply {
        let now = self.stamp();
        let machine = match self.old.first() {
            Some((_, old)) if self.bug == Bug::ReadsOld && self.misdeeds > 0 => old,
            _ => &self.machine,
        };
        let found = |job: Option<JobId>| match job {
            Some(job) => match self.bodies.get(&job.0) {
                Some(body) => Reply::Found {
                    job,
                    body: body.clone(),
                },
                None => Reply::NotFound,
            },
            None => Reply::NotFound,
        };
        match call {
            Call::Peek { job } => found(machine.job(*job, now).map(|view| view.id)),
            Call::PeekReady { tube } => found(machine.peek_ready(tube)),
            Call::PeekDelayed { tube } => found(machine.peek_delayed(tube)),
            Call::PeekBuried { tube } => found(machine.peek_buried(tube)),
            Call::StatsJob { job } => machine
                .job(*job, now)
                .map_or(Reply::NotFound, |view| Reply::JobStats(stats(&view))),
            Call::StatsTube { tube } => {
                tube_stats(machine, tube, now).map_or(Reply::NotFound, Reply::TubeStats)
            }
            _ => unreachable!("{call} is no read"),
        }
    }

    /// What is left, read when nobody is there any more.
    pub(super) fn finish(&mut self) {
        let up_to = JobId(self.bodies.keys().max().copied().unwrap_or(0) + 3);
        self.now += SECOND;
        self.lead(vec![LeaderCommand::Tick]);
        let now = self.stamp();
        let jobs: Vec<JobStats> = (1..=up_to.0)
            .filter_map(|id| self.machine.job(JobId(id), now))
            .map(|view| stats(&view))
            .collect();
        let tubes: Vec<_> = self
            .machine
            .tubes()
            .cloned()
            .filter_map(|tube| tube_stats(&self.machine, &tube, now))
            .collect();
        for node in 0..2 {
            let mut digest = format!("{:016x}", self.machine.digest());
            if node == 1 && self.bug == Bug::Diverges {
                digest.replace_range(0..1, "z");
            }
            self.records.push(Record::Final(FinalState {
                t: self.now,
                ended: self.now + MILLI,
                node: format!("n{node}"),
                applied: 1,
                digest: Some(digest),
                digest_at: Some(1),
                up_to,
                jobs: jobs.clone(),
                tubes: tubes.clone(),
                total_jobs: Some(self.machine.server().total_jobs),
            }));
        }
    }
}

fn stats(view: &JobView) -> JobStats {
    JobStats {
        job: view.id,
        tube: view.tube.clone(),
        state: match view.state {
            "ready" => JobState::Ready,
            "delayed" => JobState::Delayed,
            "reserved" => JobState::Reserved,
            _ => JobState::Buried,
        },
        priority: view.priority,
        age: view.age_seconds,
        delay: view.delay,
        ttr: view.ttr,
        time_left: view.time_left_seconds,
        reserves: view.reserves,
        timeouts: view.timeouts,
        releases: view.releases,
        buries: view.buries,
        kicks: view.kicks,
    }
}

fn tube_stats(machine: &Machine, tube: &TubeName, now: Timestamp) -> Option<TubeStats> {
    let view = machine.tube(tube, now)?;
    Some(TubeStats {
        tube: tube.clone(),
        urgent: view.urgent,
        ready: view.ready,
        reserved: view.reserved,
        delayed: view.delayed,
        buried: view.buried,
        total_jobs: view.total_jobs,
        deletes: view.deletes,
    })
}
