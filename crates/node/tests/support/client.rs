use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};
use trellis_node::{Answer, Call, CloseReason, Core, Outlet, Session};
use trellis_types::{JobId, Priority, Seconds, TubeName};

use super::PATIENCE;

#[derive(Default)]
struct Heard {
    words: Mutex<Vec<String>>,
    bell: Notify,
}

struct Ear(Arc<Heard>);

impl Outlet for Ear {
    fn deliver(&self, answers: &mut Vec<Answer>) {
        self.0
            .words
            .lock()
            .extend(answers.drain(..).map(|answer| text(&answer)));
        self.0.bell.notify_one();
    }

    fn close(&self, why: CloseReason) {
        self.0.words.lock().push(format!("closed: {why:?}"));
        self.0.bell.notify_one();
    }
}

fn text(answer: &Answer) -> String {
    let read = |body: &trellis_node::Owed| {
        let body = body.read().expect("a body");
        String::from_utf8_lossy(&body).into_owned()
    };
    match answer {
        Answer::Inserted(job) => format!("inserted {job}"),
        Answer::Reserved { job, body } => format!("reserved {job} {}", read(body)),
        Answer::Found { job, body } => format!("found {job} {}", read(body)),
        Answer::Using(tube) => format!("using {tube}"),
        Answer::Watching(count) => format!("watching {count}"),
        other => format!("{other:?}"),
    }
}

pub struct Client {
    pub session: Session,
    heard: Arc<Heard>,
}

impl Client {
    /// A client of the node, if it takes one.
    pub fn of(core: &Core) -> Option<Self> {
        let heard = Arc::new(Heard::default());
        let session = core.connect(Arc::new(Ear(heard.clone()))).ok()?;
        Some(Self { session, heard })
    }

    /// The next word; `None` if the process that serves it is gone.
    pub async fn next_word(&self, is_gone: impl Fn() -> bool) -> Option<String> {
        let end = Instant::now() + PATIENCE;
        loop {
            {
                let mut words = self.heard.words.lock();
                if !words.is_empty() {
                    return Some(words.remove(0));
                }
            }
            if is_gone() {
                return None;
            }
            assert!(Instant::now() < end, "a living node does not answer");
            let bell = self.heard.bell.notified();
            // Whoever is gone rings no bell.
            let _ = tokio::time::timeout(Duration::from_millis(100), bell).await;
        }
    }

    pub fn say(&self, calls: impl IntoIterator<Item = Call>) {
        self.session.submit(&mut calls.into_iter().collect());
    }

    /// The next `count` words that it hears.
    pub async fn hears_next(&self, count: usize) -> Vec<String> {
        let end = Instant::now() + PATIENCE;
        loop {
            {
                let mut words = self.heard.words.lock();
                if words.len() >= count {
                    return words.drain(..count).collect();
                }
            }
            let bell = self.heard.bell.notified();
            if tokio::time::timeout_at(end, bell).await.is_err() {
                panic!(
                    "{count} words wanted; last heard: {:?}",
                    self.heard.words.lock()
                );
            }
        }
    }

    pub async fn hears(&self) -> String {
        self.hears_next(1).await.remove(0)
    }

    /// What it has heard and nobody asked for.
    pub fn heard(&self) -> Vec<String> {
        self.heard.words.lock().clone()
    }

    pub async fn asks(&self, call: Call) -> String {
        self.say([call]);
        self.hears().await
    }
}

pub fn put(body: impl Into<Bytes>) -> Call {
    put_for(body, 0, 60)
}

pub fn put_for(body: impl Into<Bytes>, delay: u32, ttr: u32) -> Call {
    Call::Put {
        priority: Priority(0),
        delay: Seconds(delay),
        ttr: Seconds(ttr),
        body: body.into(),
    }
}

pub const RESERVE: Call = Call::Reserve { timeout: None };
pub const POLL: Call = Call::Reserve {
    timeout: Some(Seconds(0)),
};

pub fn delete(job: u64) -> Call {
    Call::Delete(JobId(job))
}

pub fn tube(name: &str) -> TubeName {
    TubeName::parse(name.as_bytes()).expect("a tube's name")
}
