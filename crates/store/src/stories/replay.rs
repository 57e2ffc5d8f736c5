use proptest::prelude::*;
use trellis_queue::{Command, Machine};
use trellis_types::{JobId, Priority, Seconds};

use super::replica::*;
use super::*;

/// What happens to a node beside its entries.
#[derive(Clone, Debug)]
enum Event {
    /// An entry of one connection.
    Entry(u64, Vec<Command>),
    /// Everything closed so far is written.
    Drain,
    /// What is written becomes durable.
    Flush,
    /// A snapshot is made.
    Snapshot,
    /// Some body is owed to a connection that does not read, until the next crash.
    Owe(u64),
    /// The power goes. What was not synced is lost, and the node starts again and replays.
    Crash,
}

fn command() -> impl Strategy<Value = Command> {
    let names = prop_oneof![Just("mail"), Just("news"), Just("default")];
    let names = names.prop_map(tube).boxed();
    let job = (1..30u64).prop_map(JobId);
    let seconds = (0..3u32).prop_map(Seconds);
    let priority = (0..3u32).prop_map(Priority);
    prop_oneof![
        6 => (names.clone(), priority.clone(), seconds.clone(), seconds.clone(), 0..300usize).prop_map(
            |(tube, priority, delay, ttr, bytes)| {
                let body = Bytes::from(vec![b'a' + u8::try_from(bytes % 26).unwrap(); bytes]);
                Command::Put { tube, priority, delay, ttr, body }
            }
        ),
        4 => (names.clone(), proptest::option::of(seconds.clone()))
            .prop_map(|(tube, timeout)| Command::Reserve { tubes: vec![tube], timeout }),
        4 => job.clone().prop_map(|job| Command::Delete { job }),
        2 => (job.clone(), priority.clone(), seconds.clone())
            .prop_map(|(job, priority, delay)| Command::Release { job, priority, delay }),
        2 => (job.clone(), priority).prop_map(|(job, priority)| Command::Bury { job, priority }),
        1 => job.clone().prop_map(|job| Command::Touch { job }),
        1 => job.prop_map(|job| Command::KickJob { job }),
        1 => (names.clone(), 0..5u32).prop_map(|(tube, bound)| Command::Kick { tube, bound }),
        1 => (names.clone(), seconds).prop_map(|(tube, delay)| Command::PauseTube { tube, delay }),
        1 => (names, any::<bool>()).prop_map(|(tube, set)| Command::TubeRef { tube, set }),
        1 => Just(Command::EndWait),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        20 => (1..5u64, proptest::collection::vec(command(), 1..5))
            .prop_map(|(connection, commands)| Event::Entry(connection, commands)),
        2 => Just(Event::Drain),
        2 => Just(Event::Flush),
        1 => Just(Event::Snapshot),
        2 => (1..30u64).prop_map(Event::Owe),
        1 => Just(Event::Crash),
    ]
}

/// Every body of a living job, as an undisturbed memory has it.
fn check_bodies(node: &Replica, bodies: &[(JobId, Bytes)]) {
    for (job, body) in bodies {
        if node.machine.row(trellis_queue::Key::Job(*job)).is_some() {
            let owed = node.owe(*job, body.len());
            assert_eq!(owed.read().unwrap(), body, "the body of job {job}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Rules 1, 2, 6 and "Restart": whenever the power goes, what is found is the state of one
    /// applied index, and replaying the log from there ends where a node ends that never stopped.
    #[test]
    fn a_replayed_node_equals_one_that_never_stopped(
        events in proptest::collection::vec(event(), 1..80),
        hasty in any::<bool>(),
    ) {
        let folder = Folder::with(|options| {
            options.state.window = if hasty { Duration::ZERO } else { Duration::from_secs(3600) };
            options.state.window_bytes = 1_500;
            options.state.flush_bytes = 4_000;
            options.state.body_cache_bytes = 0;
            options.state.blob_bytes_min = 200;
        });
        let mut steady = Machine::new();
        let mut history = vec![open_origin()];
        let mut bodies = Vec::new();
        steady.apply(&history[0]);
        let mut folders = vec![folder];
        let mut node = Replica::new(&folders[0]);
        let mut owed = Vec::new();
        for event in events {
            match event {
                Event::Entry(connection, commands) => {
                    let index = history.len() as u64;
                    let entry = batch(index, index, connection, commands);
                    for change in steady.apply(&entry).changes {
                        if let trellis_queue::Change::Body { job, body } = change {
                            bodies.push((job, body));
                        }
                    }
                    node.apply(&entry);
                    history.push(entry);
                }
                Event::Drain => node.drain(),
                Event::Flush => node.opened.state.flush(),
                Event::Snapshot => drop(node.snapshot()),
                Event::Owe(job) => {
                    let known = bodies.iter().find(|(known, _)| known.0 == job);
                    if let Some((job, body)) = known
                        && node.machine.row(trellis_queue::Key::Job(*job)).is_some()
                    {
                        owed.push((node.owe(*job, body.len()), body.clone()));
                    }
                }
                Event::Crash => {
                    for (owed, body) in owed.drain(..) {
                        prop_assert_eq!(owed.read().unwrap(), body, "owed bodies stay readable");
                    }
                    // The log keeps what it said it has; the state what was flushed.
                    eventually(|| node.opened.log.flushed(), |flushed| *flushed == Some(node.next - 1));
                    node.opened.state.halt();
                    let image = folders[folders.len() - 1].crash_image();
                    node = Replica::load(image.open());
                    folders.push(image);
                    for entry in &history[usize::try_from(node.next).unwrap()..] {
                        node.apply(entry);
                    }
                    prop_assert_eq!(node.machine.digest(), steady.digest());
                }
            }
        }
        node.machine.check().unwrap();
        prop_assert_eq!(node.machine.digest(), steady.digest());
        prop_assert_eq!(&node.machine, &steady);
        check_bodies(&node, &bodies);
        node.settle();
        check_bodies(&node, &bodies);
        drop(owed);
        drop(node);
        let last = folders.pop().unwrap();
        let node = Replica::load(last.open());
        prop_assert_eq!(node.machine.digest(), steady.digest());
        check_bodies(&node, &bodies);
        prop_assert_eq!(last.failures(), Vec::<String>::new());
    }
}
