//! Random clients over a log that loses, repeats and delays. Whatever happens, at rest every
//! client has been answered in order, or waits where the machine says that it waits.

use proptest::prelude::*;
use trellis_types::{JobId, Seconds};

use super::*;
use crate::origin::{Phase, connection::State};

#[derive(Clone, Debug)]
enum Step {
    Connect,
    Say(usize, Vec<Word>),
    HalfClose(usize),
    HangUp(usize),
    Hand,
    Commit,
    /// The leader is lost with all that it has; a new stream sends again.
    Lose,
    /// A stream broke, the leader lives: some comes twice.
    Again,
    Read,
    Wait(u64),
}

#[derive(Clone, Copy, Debug)]
enum Word {
    Put,
    Reserve,
    Timed,
    Poll,
    Delete(u64),
    Release(u64),
    ReserveJob(u64),
    Use(u8),
    Watch(u8),
    Ignore(u8),
    Peek(u64),
    ListUsed,
    Quit,
}

fn names(number: u8) -> TubeName {
    tube(["default", "a", "b"][usize::from(number % 3)])
}

impl Word {
    fn call(self) -> Call {
        match self {
            Self::Put => put("x"),
            Self::Reserve => RESERVE,
            Self::Timed => Call::Reserve {
                timeout: Some(Seconds(2)),
            },
            Self::Poll => POLL,
            Self::Delete(job) => Call::Delete(JobId(job)),
            Self::Release(job) => Call::Release {
                job: JobId(job),
                priority: Priority(0),
                delay: Seconds(0),
            },
            Self::ReserveJob(job) => Call::ReserveJob(JobId(job)),
            Self::Use(number) => Call::Use(names(number)),
            Self::Watch(number) => Call::Watch(names(number)),
            Self::Ignore(number) => Call::Ignore(names(number)),
            Self::Peek(job) => Call::Peek(JobId(job)),
            Self::ListUsed => Call::ListTubeUsed,
            Self::Quit => Call::Quit,
        }
    }
}

fn word() -> impl Strategy<Value = Word> {
    prop_oneof![
        6 => Just(Word::Put),
        6 => Just(Word::Reserve),
        2 => Just(Word::Timed),
        2 => Just(Word::Poll),
        2 => (1_u64..9).prop_map(Word::Delete),
        2 => (1_u64..9).prop_map(Word::Release),
        1 => (1_u64..9).prop_map(Word::ReserveJob),
        2 => any::<u8>().prop_map(Word::Use),
        2 => any::<u8>().prop_map(Word::Watch),
        2 => any::<u8>().prop_map(Word::Ignore),
        1 => (1_u64..9).prop_map(Word::Peek),
        1 => Just(Word::ListUsed),
        1 => Just(Word::Quit),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Connect),
        8 => (any::<usize>(), proptest::collection::vec(word(), 1..6))
            .prop_map(|(client, words)| Step::Say(client, words)),
        1 => any::<usize>().prop_map(Step::HalfClose),
        1 => any::<usize>().prop_map(Step::HangUp),
        6 => Just(Step::Hand),
        6 => Just(Step::Commit),
        1 => Just(Step::Lose),
        1 => Just(Step::Again),
        3 => Just(Step::Read),
        2 => (1_u64..3_000).prop_map(Step::Wait),
    ]
}

struct Chance {
    story: Story,
    clients: Vec<Client>,
    /// How many calls each has said before it was closed.
    said: Vec<usize>,
    heard: Vec<usize>,
}

impl Chance {
    fn take(&mut self, step: Step) {
        let count = self.clients.len().max(1);
        match step {
            Step::Connect => {
                if self.clients.len() < 6 {
                    self.clients.push(self.story.client());
                    self.said.push(0);
                    self.heard.push(0);
                }
            }
            Step::Say(client, words) => {
                if let Some(chosen) = self.clients.get(client % count).cloned() {
                    self.said[client % count] += words.len();
                    self.story.say(&chosen, words.into_iter().map(Word::call));
                }
            }
            Step::HalfClose(client) => {
                if let Some(chosen) = self.clients.get(client % count).cloned() {
                    self.story.half_closes(&chosen);
                }
            }
            Step::HangUp(client) => {
                if let Some(chosen) = self.clients.get(client % count).cloned() {
                    self.story.hangs_up(&chosen);
                }
            }
            Step::Hand => {
                self.story.hand();
            }
            Step::Commit => self.story.commit(),
            Step::Lose => self.story.wire = self.sent_again(),
            Step::Again => {
                let again = self.sent_again();
                self.story.wire.extend(again);
            }
            Step::Read => self.story.read(),
            Step::Wait(ms) => {
                self.story.wait(ms);
                self.story.tick();
            }
        }
        self.listen();
    }

    fn sent_again(&self) -> Vec<Bytes> {
        self.story
            .origin
            .resend(Story::own(1))
            .into_iter()
            .map(|(_, bytes)| bytes)
            .collect()
    }

    fn listen(&mut self) {
        for (index, client) in self.clients.iter().enumerate() {
            self.heard[index] += client
                .hears()
                .iter()
                .filter(|word| !word.starts_with("closed"))
                .count();
            assert!(
                self.heard[index] <= self.said[index],
                "client {index} hears more than it said"
            );
        }
    }

    fn rests(&mut self) {
        for _ in 0..1_000 {
            self.story.run();
            self.story.read();
            self.listen();
            if self.story.tickets.is_empty() && self.story.origin.left().1 == 0 {
                break;
            }
        }
        let origin = &self.story.origin;
        let machine = &self.story.machine;
        assert_eq!(origin.phase(), Phase::Open(Story::own(1)));
        assert_eq!(origin.left().1, 0, "batches are left");
        assert!(origin.reading.is_empty());
        let mut waiting = 0;
        for connection in origin.sessions.values() {
            let unanswered: Vec<&State> = connection.slots.iter().map(|slot| &slot.state).collect();
            match unanswered.split_first() {
                None => {}
                Some((State::Parked, rest)) => {
                    waiting += 1;
                    // What needs no leader may be answered already, in its place.
                    let waits = |state: &&State| matches!(state, State::Held | State::Answered(_));
                    assert!(rest.iter().all(waits));
                }
                Some(_) => panic!("{:?} is stuck", connection.id),
            }
            assert!(!connection.half, "half-closed {:?} stays", connection.id);
            assert_eq!(connection.may_be_parked(), !unanswered.is_empty());
        }
        assert_eq!(
            machine.server().waiting,
            waiting,
            "who waits here waits there"
        );
        for name in ["a", "b"] {
            let (using, watching) = origin.interest(&tube(name));
            assert_eq!(
                machine.has_reference(Story::own(1), &tube(name)),
                using + watching > 0,
                "references of {name}"
            );
        }
        for job in 1..=machine.server().total_jobs {
            if let Some(view) = machine.job(JobId(job), Timestamp(0))
                && let Some(holder) = view.holder
            {
                assert!(
                    origin.sessions.contains_key(&holder.connection),
                    "job {job} is held by a session that is over"
                );
            }
        }
        assert_eq!(origin.outbound.batches.budget(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn at_rest_everybody_is_answered_or_waits(steps in proptest::collection::vec(step(), 1..80)) {
        let mut chance = Chance {
            story: Story::begins(),
            clients: Vec::new(),
            said: Vec::new(),
            heard: Vec::new(),
        };
        for step in steps {
            chance.take(step);
        }
        chance.rests();
    }
}
