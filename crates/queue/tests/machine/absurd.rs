//! Numbers from the ends of their ranges: nothing panics, nothing wraps, nothing is left unsound.

use bytes::Bytes;
use proptest::{collection::vec, prelude::*, sample::select};
use trellis_queue::{Batch, Command, Content, Entry, Item, LeaderCommand, Machine};
use trellis_types::{
    ConnectionId, JobId, NodeId, OriginId, Priority, Run, Seconds, Timestamp, TubeName,
};

use crate::random;

fn long() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..4_u64, 1 => select(vec![1 << 44, u64::MAX - 1, u64::MAX]), 1 => any::<u64>()]
}

fn seconds() -> impl Strategy<Value = Seconds> {
    prop_oneof![0..3_u32, Just(u32::MAX), any::<u32>()].prop_map(Seconds)
}

fn origin() -> impl Strategy<Value = OriginId> {
    (long(), long()).prop_map(|(node, run)| OriginId {
        node: NodeId(node),
        run: Run(run),
    })
}

fn tube() -> impl Strategy<Value = TubeName> {
    select(random::tubes())
}

fn command() -> impl Strategy<Value = Command> {
    let job = || long().prop_map(JobId);
    prop_oneof![
        (tube(), any::<u32>(), seconds(), seconds()).prop_map(|(tube, priority, delay, ttr)| {
            let (priority, body) = (Priority(priority), Bytes::from_static(b"soup"));
            Command::Put {
                tube,
                priority,
                delay,
                ttr,
                body,
            }
        }),
        (vec(tube(), 0..3), proptest::option::of(seconds()))
            .prop_map(|(tubes, timeout)| Command::Reserve { tubes, timeout }),
        job().prop_map(|job| Command::ReserveJob { job }),
        (job(), any::<u32>(), seconds()).prop_map(|(job, priority, delay)| {
            Command::Release {
                job,
                priority: Priority(priority),
                delay,
            }
        }),
        job().prop_map(|job| Command::Bury {
            job,
            priority: Priority(u32::MAX)
        }),
        job().prop_map(|job| Command::Touch { job }),
        job().prop_map(|job| Command::Delete { job }),
        job().prop_map(|job| Command::KickJob { job }),
        (tube(), any::<u32>(), any::<bool>()).prop_map(|(tube, bound, delayed)| {
            Command::KickPortion {
                tube,
                bound,
                delayed,
            }
        }),
        (tube(), any::<u32>()).prop_map(|(tube, bound)| Command::Kick { tube, bound }),
        (tube(), seconds()).prop_map(|(tube, delay)| Command::PauseTube { tube, delay }),
        Just(Command::CloseSession),
        Just(Command::EndWait),
    ]
}

fn content() -> impl Strategy<Value = Content> {
    let item = (long(), command()).prop_map(|(connection, command)| Item {
        connection: ConnectionId(connection),
        command,
    });
    let seq = prop_oneof![9 => Just(None), 1 => long().prop_map(Some)];
    let batch = (origin(), seq, vec(item, 0..6)).prop_map(|(origin, seq, items)| {
        // 0 stands for "the next", filled in when it is known.
        Batch {
            origin,
            seq: seq.unwrap_or(0),
            items,
        }
    });
    let word = prop_oneof![
        3 => origin().prop_map(LeaderCommand::OpenOrigin),
        1 => origin().prop_map(LeaderCommand::SuspendOrigin),
        1 => origin().prop_map(LeaderCommand::ResumeOrigin),
        1 => origin().prop_map(LeaderCommand::ExpireOrigin),
        1 => (100..=u64::MAX).prop_map(|node| LeaderCommand::RetireNode(NodeId(node))),
    ];
    prop_oneof![
        3 => vec(batch, 1..3).prop_map(Content::Batches),
        1 => vec(word, 1..3).prop_map(Content::Leader),
    ]
}

proptest! {
    #[test]
    fn whatever_the_numbers_the_machine_stays_sound(
        script in vec((long(), content()), 1..40),
    ) {
        let mut machine = Machine::new();
        machine.apply(&random::opening());
        for (at, mut content) in script {
            if let Content::Batches(batches) = &mut content {
                for batch in batches.iter_mut().filter(|batch| batch.seq == 0) {
                    // Mostly of an origin that is open, so that something happens.
                    if let Some(known) = machine.origins().find(|known| known.open.is_some()) {
                        batch.origin = known.open.unwrap_or(batch.origin);
                        batch.seq = known.last_seq.saturating_add(1);
                    }
                }
            }
            machine.apply(&Entry { at: Timestamp(at), content });
            prop_assert_eq!(machine.check(), Ok(()));
            for row in machine.rows() {
                prop_assert_eq!(machine.row(row.key()), Some(row));
            }
            let _ = (machine.next_due(), machine.server());
        }
    }
}
