//! Short histories, told line by line. Times are milliseconds.

use trellis_checker::{
    BadHistory, Verdict, check,
    history::{
        Body, Bounds, Call, CloseSide, Demands, FinalState, Header, JobState, JobStats, MILLI,
        NodeEvent, Record, Reply, Stage, TubeStats, VERSION,
    },
};
use trellis_types::{JobId, Priority, Seconds, Timestamp, TubeName};

/// A history under way. Connections 1, 2 and 3 are to the nodes n1, n2 and n3.
pub(crate) struct Story {
    records: Vec<Record>,
    ops: u64,
}

pub(crate) fn tube(name: &str) -> TubeName {
    TubeName::parse(name.as_bytes()).expect("a good name")
}

pub(crate) fn put(key: &str, priority: u32, delay: u32, ttr: u32) -> Call {
    Call::Put {
        tube: tube("t"),
        priority: Priority(priority),
        delay: Seconds(delay),
        ttr: Seconds(ttr),
        body: Body::named(key, 20),
    }
}

pub(crate) fn reserve(timeout: u32) -> Call {
    Call::Reserve {
        tubes: vec![tube("t")],
        timeout: Some(Seconds(timeout)),
    }
}

pub(crate) fn delete(job: u64) -> Call {
    Call::Delete { job: JobId(job) }
}

pub(crate) fn touch(job: u64) -> Call {
    Call::Touch { job: JobId(job) }
}

pub(crate) fn release(job: u64, priority: u32, delay: u32) -> Call {
    Call::Release {
        job: JobId(job),
        priority: Priority(priority),
        delay: Seconds(delay),
    }
}

pub(crate) fn bury(job: u64) -> Call {
    Call::Bury {
        job: JobId(job),
        priority: Priority(0),
    }
}

pub(crate) fn peek(job: u64) -> Call {
    Call::Peek { job: JobId(job) }
}

pub(crate) fn stats_job(job: u64) -> Call {
    Call::StatsJob { job: JobId(job) }
}

pub(crate) fn inserted(job: u64) -> Reply {
    Reply::Inserted { job: JobId(job) }
}

pub(crate) fn reserved(job: u64, key: &str) -> Reply {
    Reply::Reserved {
        job: JobId(job),
        body: Body::named(key, 20),
    }
}

pub(crate) fn found(job: u64, key: &str) -> Reply {
    Reply::Found {
        job: JobId(job),
        body: Body::named(key, 20),
    }
}

/// What `stats-job` says of a job that was put with priority 1, no delay and TTR 10.
pub(crate) fn stats(job: u64, state: JobState, age: u64, left: u64, reserves: u32) -> JobStats {
    JobStats {
        job: JobId(job),
        tube: tube("t"),
        state,
        priority: Priority(1),
        age,
        delay: Seconds(0),
        ttr: Seconds(10),
        time_left: left,
        reserves,
        timeouts: 0,
        releases: 0,
        buries: 0,
        kicks: 0,
    }
}

pub(crate) fn tube_stats(ready: u64, reserved: u64, delayed: u64, buried: u64) -> TubeStats {
    TubeStats {
        tube: tube("t"),
        urgent: ready,
        ready,
        reserved,
        delayed,
        buried,
        total_jobs: 0,
        deletes: 0,
    }
}

impl Story {
    pub(crate) fn new() -> Self {
        Self::demanding(Demands {
            acknowledged: 0,
            faults: 0,
            finals: 0,
        })
    }

    pub(crate) fn demanding(demands: Demands) -> Self {
        let header = Header {
            version: VERSION,
            instrument: "story".to_owned(),
            seed: 0,
            commit: String::new(),
            profile: String::new(),
            bounds: Bounds {
                early_ms: 50,
                late_ms: 500,
                lease_ms: 2_000,
                firm_waits: true,
            },
            demands,
            local_reads: false,
        };
        let mut story = Self {
            records: vec![Record::Header(header)],
            ops: 0,
        };
        for connection in 1..=3_u32 {
            story.records.push(Record::Opened {
                t: MILLI,
                connection: connection.into(),
                client: connection,
                node: format!("n{connection}"),
            });
        }
        story
    }

    /// `connection` asks at `from` and is told at `to`.
    pub(crate) fn told(
        &mut self,
        connection: u64,
        from: u64,
        to: u64,
        call: Call,
        reply: Reply,
    ) -> &mut Self {
        let op = self.ask(connection, from, call);
        self.records.push(Record::Replied {
            t: to * MILLI,
            op,
            reply,
        });
        self
    }

    /// `connection` asks at `from`, and nobody ever hears what came of it.
    pub(crate) fn never_told(&mut self, connection: u64, from: u64, call: Call) -> &mut Self {
        self.given_up(connection, from, from + 10, call)
    }

    /// `connection` asks at `from`, and gives up at `to`.
    pub(crate) fn given_up(
        &mut self,
        connection: u64,
        from: u64,
        to: u64,
        call: Call,
    ) -> &mut Self {
        let op = self.ask(connection, from, call);
        let why = "closed".to_owned();
        self.records.push(Record::Unknown {
            t: to * MILLI,
            op,
            why,
        });
        self
    }

    fn ask(&mut self, connection: u64, from: u64, call: Call) -> u64 {
        self.ops += 1;
        self.records.push(Record::Invoked {
            t: from * MILLI,
            op: self.ops,
            connection,
            call,
        });
        self.ops
    }

    pub(crate) fn closed(&mut self, connection: u64, at: u64) -> &mut Self {
        self.records.push(Record::Closed {
            t: at * MILLI,
            connection,
            by: CloseSide::Client,
        });
        self
    }

    /// The server closes a connection at `lost`, and the client has its next one at `again`.
    pub(crate) fn lost(&mut self, connection: u64, lost: u64, next: u64, again: u64) -> &mut Self {
        self.records.push(Record::Closed {
            t: lost * MILLI,
            connection,
            by: CloseSide::Server,
        });
        self.records.push(Record::Opened {
            t: again * MILLI,
            connection: next,
            client: u32::try_from(connection).expect("a small number"),
            node: format!("n{connection}"),
        });
        self
    }

    pub(crate) fn fault(&mut self, from: u64, to: u64) -> &mut Self {
        for (t, stage) in [(from, Stage::Begin), (to, Stage::End)] {
            self.records.push(Record::Nemesis {
                t: t * MILLI,
                fault: 6,
                what: "a pause".to_owned(),
                nodes: vec!["n1".to_owned()],
                stage,
                effect: true,
            });
        }
        self
    }

    pub(crate) fn node(&mut self, node: &str, at: u64, event: NodeEvent) -> &mut Self {
        self.records.push(Record::Node {
            t: at * MILLI,
            node: node.to_owned(),
            event,
        });
        self
    }

    pub(crate) fn sample(
        &mut self,
        node: &str,
        at: u64,
        applied: u64,
        now: u64,
        digest: &str,
    ) -> &mut Self {
        self.records.push(Record::Sample {
            t: at * MILLI,
            node: node.to_owned(),
            applied,
            now: Some(Timestamp(now)),
            digest: Some(digest.to_owned()),
            digest_at: Some(applied),
        });
        self
    }

    pub(crate) fn drained(&mut self, from: u64, to: u64, drained: bool) -> &mut Self {
        let left = if drained {
            String::new()
        } else {
            "t: ready 1".to_owned()
        };
        self.records.push(Record::Liveness {
            t: from * MILLI,
            ended: to * MILLI,
            drained,
            left,
        });
        self
    }

    /// Node `node` holds exactly `jobs` at the end.
    pub(crate) fn finally(&mut self, node: &str, at: u64, jobs: Vec<JobStats>) -> &mut Self {
        let count = |state| jobs.iter().filter(|job| job.state == state).count() as u64;
        let counts = tube_stats(
            count(JobState::Ready),
            count(JobState::Reserved),
            count(JobState::Delayed),
            count(JobState::Buried),
        );
        self.finally_counting(node, at, jobs, counts)
    }

    pub(crate) fn finally_counting(
        &mut self,
        node: &str,
        at: u64,
        jobs: Vec<JobStats>,
        counts: TubeStats,
    ) -> &mut Self {
        self.records.push(Record::Final(FinalState {
            t: at * MILLI,
            ended: (at + 1) * MILLI,
            node: node.to_owned(),
            applied: 100,
            digest: None,
            digest_at: None,
            up_to: JobId(100),
            jobs,
            tubes: vec![counts],
            total_jobs: None,
        }));
        self
    }

    pub(crate) fn total(&mut self, total: u64) -> &mut Self {
        if let Some(Record::Final(state)) = self.records.last_mut() {
            state.total_jobs = Some(total);
        }
        self
    }

    pub(crate) fn verdict(&self) -> Verdict {
        // As an instrument would have written and somebody read it.
        let lines: Vec<String> = self
            .records
            .iter()
            .map(|record| serde_json::to_string(record).expect("it can be written"))
            .collect();
        let text = lines.join("\n");
        let read = trellis_checker::history::read(text.as_bytes());
        check(read.map(|record| record.expect("it can be read"))).expect("a history")
    }

    /// Why it is no history.
    pub(crate) fn bad(&self) -> BadHistory {
        check(self.records.clone()).expect_err("it is a history")
    }

    #[track_caller]
    pub(crate) fn is_sound(&self) {
        let verdict = self.verdict();
        assert!(verdict.is_sound(), "{verdict}");
    }

    /// It is refused, for this reason alone or before all others, and the slice shows something.
    #[track_caller]
    pub(crate) fn breaks(&self, invariant: trellis_checker::Invariant) {
        let verdict = self.verdict();
        assert_eq!(verdict.first(), Some(invariant), "{verdict}");
    }
}
