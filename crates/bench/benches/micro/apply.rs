//! What `Machine::apply` costs for each command, in entries of 256.

use criterion::Criterion;
use trellis_queue::{Command, Content, Entry, LeaderCommand, Machine};
use trellis_types::{JobId, Priority, Seconds, Timestamp};

use crate::costs::{BATCH, Cost, batch, open, per_command, put, put_into, reserve, tube};

/// As many as beanstalkd is slow with.
const MANY_TUBES: u64 = 30_000;

/// A machine, and what the next entry is to say.
#[derive(Clone)]
struct World {
    machine: Machine,
    seq: u64,
    now: u64,
}

impl World {
    fn new() -> Self {
        let mut machine = Machine::new();
        machine.apply(&open());
        Self {
            machine,
            seq: 1,
            now: 1,
        }
    }

    /// Applies commands in entries of [`BATCH`]; what apply alone cost.
    fn tell(&mut self, items: &[(u64, Command)]) -> Cost {
        let entries: Vec<Entry> = items
            .chunks(BATCH)
            .map(|items| {
                let content = Content::Batches(vec![batch(self.seq, items)]);
                self.seq += 1;
                Entry {
                    at: Timestamp(self.now),
                    content,
                }
            })
            .collect();
        let mut whole = Cost::default();
        for entry in &entries {
            let (cost, outcome) = Cost::of(|| self.machine.apply(entry));
            assert!(!outcome.events.is_empty(), "a batch was refused");
            whole.add(cost);
        }
        whole
    }

    /// With `count` jobs, 1, 2, 3 …
    fn with_jobs(count: u64, delay: u32) -> Self {
        let mut world = Self::new();
        world.tell(&same(count, 1, || put(delay)));
        world
    }

    /// With `count` jobs, job n held by connection n.
    fn with_holds(count: u64) -> Self {
        let mut world = Self::with_jobs(count, 0);
        world.tell(&by_job(count, |_| reserve()));
        world
    }
}

fn same(count: u64, connection: u64, command: impl Fn() -> Command) -> Vec<(u64, Command)> {
    (0..count).map(|_| (connection, command())).collect()
}

fn numbered(tube: u64) -> String {
    format!("tube-{tube}")
}

fn refer(number: u64) -> Command {
    Command::TubeRef {
        tube: tube(&numbered(number)),
        set: true,
    }
}

/// A command of connection n about job n.
fn by_job(count: u64, command: impl Fn(JobId) -> Command) -> Vec<(u64, Command)> {
    (1..=count)
        .map(|number| (number, command(JobId(number))))
        .collect()
}

pub(crate) fn commands(c: &mut Criterion) {
    per_command(c, "apply put", |count| {
        World::new().tell(&same(count, 1, || put(0)))
    });
    let with_tubes = {
        let mut world = World::new();
        let items: Vec<_> = (0..MANY_TUBES).map(|number| (0, refer(number))).collect();
        world.tell(&items);
        world
    };
    per_command(c, "apply put, each into another of 30,000 tubes", |count| {
        let items: Vec<_> = (0..count)
            // Far from one another, as those of many clients are.
            .map(|number| (1, put_into(&numbered(number * 7_919 % MANY_TUBES), 0)))
            .collect();
        with_tubes.clone().tell(&items)
    });
    per_command(c, "apply put, delayed", |count| {
        World::new().tell(&same(count, 1, || put(3600)))
    });
    per_command(c, "apply put, to a worker that waits", |count| {
        let mut world = World::new();
        world.tell(&by_job(count, |_| reserve()));
        world.tell(&same(count, count + 1, || put(0)))
    });
    per_command(c, "apply reserve, of a ready job", |count| {
        World::with_jobs(count, 0).tell(&by_job(count, |_| reserve()))
    });
    per_command(c, "apply reserve, that waits", |count| {
        World::new().tell(&by_job(count, |_| reserve()))
    });
    per_command(c, "apply reserve-job", |count| {
        World::with_jobs(count, 0).tell(&by_job(count, |job| Command::ReserveJob { job }))
    });
    per_command(c, "apply delete, of a ready job", |count| {
        World::with_jobs(count, 0).tell(&by_job(count, |job| Command::Delete { job }))
    });
    per_command(c, "apply delete, of a held job", |count| {
        World::with_holds(count).tell(&by_job(count, |job| Command::Delete { job }))
    });
    per_command(c, "apply release", |count| {
        World::with_holds(count).tell(&by_job(count, |job| Command::Release {
            job,
            priority: Priority(1),
            delay: Seconds(0),
        }))
    });
    per_command(c, "apply bury", |count| {
        World::with_holds(count).tell(&by_job(count, |job| Command::Bury {
            job,
            priority: Priority(1),
        }))
    });
    per_command(c, "apply touch", |count| {
        World::with_holds(count).tell(&by_job(count, |job| Command::Touch { job }))
    });
    per_command(c, "apply kick-job", |count| {
        World::with_jobs(count, 3600).tell(&by_job(count, |job| Command::KickJob { job }))
    });
    per_command(c, "apply kick, for each job", |count| {
        let bound = u32::try_from(count).unwrap_or(u32::MAX);
        let kick = Command::Kick {
            tube: tube("work"),
            bound,
        };
        World::with_jobs(count, 3600).tell(&[(1, kick)])
    });
    per_command(c, "apply pause-tube", |count| {
        World::with_jobs(1, 0).tell(&same(count, 1, || Command::PauseTube {
            tube: tube("work"),
            delay: Seconds(60),
        }))
    });
    per_command(c, "apply a tube's first reference", |count| {
        let items: Vec<_> = (0..count).map(|number| (0, refer(number))).collect();
        World::new().tell(&items)
    });
    per_command(c, "apply the end of a session that waits", |count| {
        let mut world = World::new();
        world.tell(&by_job(count, |_| reserve()));
        world.tell(&by_job(count, |_| Command::CloseSession))
    });
}

pub(crate) fn due(c: &mut Criterion) {
    per_command(c, "apply a tick, for each job that falls due", |count| {
        let mut world = World::with_jobs(count, 1);
        let tick = Entry {
            at: Timestamp(world.now + 2_000),
            content: Content::Leader(vec![LeaderCommand::Tick]),
        };
        let mut whole = Cost::default();
        while world
            .machine
            .next_due()
            .is_some_and(|moment| moment <= tick.at)
        {
            let (cost, _outcome) = Cost::of(|| world.machine.apply(&tick));
            whole.add(cost);
        }
        whole
    });
}
