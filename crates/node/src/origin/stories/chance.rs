//! Random clients over a log that loses, repeats and delays. Whatever happens: every put takes
//! effect at most once and in the order of its client, as its client was told; and at rest every
//! client has been answered in order, or waits where the machine says that it waits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;
use trellis_types::{JobId, Seconds};

use super::*;
use crate::origin::{Phase, connection::State};

#[derive(Clone, Debug)]
enum Step {
    Connect,
    Say(usize, Vec<Word>),
    /// The end of the input is noticed before it is read to the end.
    EndIsNear(usize),
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
    /// The node gives its sessions up and opens another origin.
    Fence,
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
            // Its tag is filled in by whoever says it.
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
        1 => any::<usize>().prop_map(Step::EndIsNear),
        1 => any::<usize>().prop_map(Step::HalfClose),
        1 => any::<usize>().prop_map(Step::HangUp),
        6 => Just(Step::Hand),
        6 => Just(Step::Commit),
        1 => Just(Step::Lose),
        1 => Just(Step::Again),
        3 => Just(Step::Read),
        3 => (1_u64..3_000).prop_map(Step::Wait),
        1 => Just(Step::Wait(6_000)),
        1 => Just(Step::Fence),
    ]
}

struct Chance {
    story: Story,
    clients: Vec<Voice>,
    run: u64,
    next_tag: u32,
    /// Jobs as they came into being, by id: the tag of their put.
    jobs: BTreeMap<u64, u32>,
    scanned: u64,
    /// What clients were told: that the put of this tag made this job …
    inserted: BTreeMap<u32, u64>,
    /// … or that it was not and will not be done.
    withdrawn: BTreeSet<u32>,
}

struct Voice {
    client: Client,
    /// The tags of what it said and has no answer to; 0 for anything but a put.
    said: VecDeque<u32>,
    closed: bool,
}

impl Chance {
    fn begins() -> Self {
        Self {
            story: Story::begins(),
            clients: Vec::new(),
            run: 1,
            next_tag: 1,
            jobs: BTreeMap::new(),
            scanned: 0,
            inserted: BTreeMap::new(),
            withdrawn: BTreeSet::new(),
        }
    }

    fn take(&mut self, step: Step) {
        let count = self.clients.len().max(1);
        match step {
            Step::Connect => {
                if self.clients.len() < 6 {
                    self.clients.push(Voice {
                        client: self.story.client(),
                        said: VecDeque::new(),
                        closed: false,
                    });
                }
            }
            Step::Say(client, words) => self.say(client % count, words),
            Step::HalfClose(client) => {
                if let Some(voice) = self.clients.get(client % count) {
                    self.story.half_closes(&voice.client.clone());
                }
            }
            Step::EndIsNear(client) => {
                if let Some(voice) = self.clients.get(client % count) {
                    let now = self.story.now;
                    self.story.origin.hung_up(voice.client.id, now);
                    self.story.settles();
                }
            }
            Step::HangUp(client) => {
                if client % count < self.clients.len() {
                    let voice = self.clients.remove(client % count);
                    self.story.hangs_up(&voice.client);
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
            Step::Fence => {
                self.story.origin.fence(CloseReason::Fenced);
                self.story.settles();
                self.run += 1;
                self.story.opens(self.run);
            }
        }
        self.listen();
        self.scan();
    }

    fn say(&mut self, index: usize, words: Vec<Word>) {
        let Some(voice) = self.clients.get_mut(index) else {
            return;
        };
        let mut calls = Vec::new();
        for word in words {
            let mut call = word.call();
            let mut tag = 0;
            if let Call::Put { priority, .. } = &mut call {
                tag = self.next_tag;
                *priority = Priority(tag);
                self.next_tag += 1;
            }
            voice.said.push_back(tag);
            calls.push(call);
        }
        self.story.say(&voice.client.clone(), calls);
    }

    fn sent_again(&self) -> Vec<Bytes> {
        self.story
            .origin
            .resend(Story::own(self.run))
            .into_iter()
            .map(|(_, bytes)| bytes)
            .collect()
    }

    fn listen(&mut self) {
        for voice in &mut self.clients {
            for word in voice.client.hears() {
                assert!(!voice.closed, "{word} after the end");
                if word.starts_with("closed") {
                    voice.closed = true;
                    continue;
                }
                let tag = voice.said.pop_front().expect("an answer to nothing");
                if tag == 0 {
                    continue;
                }
                match word.strip_prefix("inserted ") {
                    Some(id) => {
                        self.inserted.insert(tag, id.parse().expect("an id"));
                    }
                    None if word == "Draining" => {
                        self.withdrawn.insert(tag);
                    }
                    None => assert_eq!(word, "InternalError", "the answer to a put"),
                }
            }
        }
        self.clients.retain(|voice| !voice.closed);
    }

    /// Looks at the jobs that have come since.
    fn scan(&mut self) {
        let total = self.story.machine.server().total_jobs;
        for id in self.scanned + 1..=total {
            // One that was released or deleted at once has lost its tag.
            let view = self.story.machine.job(JobId(id), Timestamp(0));
            if let Some(tag) = view.map(|view| view.priority.0).filter(|tag| *tag > 0) {
                assert!(
                    self.jobs.values().all(|known| *known != tag),
                    "put {tag} took effect twice"
                );
                assert!(!self.withdrawn.contains(&tag), "put {tag} was withdrawn");
                self.jobs.insert(id, tag);
            }
        }
        self.scanned = total;
        for (tag, id) in &self.inserted {
            assert!(*id <= total, "job {id} was promised and does not exist");
            if let Some(known) = self.jobs.get(id) {
                assert_eq!(known, tag, "job {id} is another client's");
            }
        }
    }

    fn rests(&mut self) {
        for _ in 0..1_000 {
            self.story.run();
            self.story.read();
            self.listen();
            self.scan();
            if self.story.tickets.is_empty() && self.story.origin.left().1 == 0 {
                break;
            }
        }
        let origin = &self.story.origin;
        let machine = &self.story.machine;
        assert_eq!(origin.phase(), Phase::Open(Story::own(self.run)));
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
            assert!(!connection.over, "half-closed {:?} stays", connection.id);
            assert!(
                !connection.half || unanswered.is_empty(),
                "{:?} waits for a job",
                connection.id
            );
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
                machine.has_reference(Story::own(self.run), &tube(name)),
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
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(1_024),
        ..ProptestConfig::default()
    })]

    #[test]
    fn at_rest_everybody_is_answered_or_waits(steps in proptest::collection::vec(step(), 1..80)) {
        let mut chance = Chance::begins();
        for step in steps {
            chance.take(step);
        }
        chance.rests();
    }
}
