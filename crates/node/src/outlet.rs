use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::Answer;

/// One connection's way out, implemented by a door.
pub trait Outlet: Send + Sync {
    /// Takes answers, in the order of the commands. Called at most once per connection and apply
    /// round, from the apply task or inline from [`Session::submit`](crate::Session::submit), so
    /// it must not block: encode and try to write, and leave the rest to the connection's task.
    fn deliver(&self, answers: &mut Vec<Answer>);

    /// The session is over; called once, after the last `deliver`.
    fn close(&self, why: CloseReason);
}

/// Why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// The client said `quit`.
    Quit,
    /// The client shut its sending side and everything is answered.
    HalfClosed,
    /// The outcome of a command is unknown (architecture, section 9).
    OutcomeUnknown,
    /// This node lost the cluster; its sessions are over there too.
    Fenced,
    /// This node stops in good order.
    Drained,
}

/// What lies between the origin's lock and an outlet: answers queue up under the lock and are
/// delivered outside of it, in order whoever delivers.
pub(crate) struct Line {
    outlet: Arc<dyn Outlet>,
    pending: Mutex<Pending>,
    /// Held by whoever delivers; the buffer goes back and forth so that it is allocated once.
    gate: Mutex<Vec<Answer>>,
    /// Whether the door must not read more of this connection now.
    full: AtomicBool,
    readable: Notify,
}

#[derive(Default)]
struct Pending {
    answers: Vec<Answer>,
    close: Option<CloseReason>,
    /// Whether somebody is going to deliver.
    queued: bool,
}

impl Line {
    pub(crate) fn new(outlet: Arc<dyn Outlet>) -> Arc<Self> {
        Arc::new(Self {
            outlet,
            pending: Mutex::default(),
            gate: Mutex::default(),
            full: AtomicBool::new(false),
            readable: Notify::new(),
        })
    }

    /// Queues answers; whether the caller has to see to it that they are delivered.
    pub(crate) fn push(&self, answers: impl Iterator<Item = Answer>) -> bool {
        let mut pending = self.pending.lock();
        pending.answers.extend(answers);
        !std::mem::replace(&mut pending.queued, true)
    }

    /// Queues the end; whether the caller has to see to it that it is delivered.
    pub(crate) fn end(&self, why: CloseReason) -> bool {
        let mut pending = self.pending.lock();
        pending.close.get_or_insert(why);
        !std::mem::replace(&mut pending.queued, true)
    }

    /// Gives the outlet what is queued. Never called under the origin's lock. Somebody who delivers
    /// already is not waited for: he comes back for what was queued meanwhile.
    pub(crate) fn deliver(&self) {
        while let Some(mut buffer) = self.gate.try_lock() {
            let close = {
                let mut pending = self.pending.lock();
                std::mem::swap(&mut pending.answers, &mut *buffer);
                pending.queued = false;
                pending.close.take()
            };
            if !buffer.is_empty() {
                self.outlet.deliver(&mut buffer);
                buffer.clear();
            }
            if let Some(why) = close {
                self.outlet.close(why);
            }
            drop(buffer);
            if !self.pending.lock().queued {
                return;
            }
        }
    }

    pub(crate) fn set_full(&self, full: bool) {
        if self.full.swap(full, Ordering::Relaxed) && !full {
            self.readable.notify_one();
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Returns when the line may have stopped being full.
    pub(crate) async fn readable(&self) {
        self.readable.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use super::*;

    /// A door that submits from within `deliver`, so that the line is delivered in itself.
    #[derive(Default)]
    struct Eager {
        line: OnceLock<Arc<Line>>,
        heard: Mutex<Vec<String>>,
    }

    impl Outlet for Eager {
        fn deliver(&self, answers: &mut Vec<Answer>) {
            let first = self.heard.lock().is_empty();
            self.heard
                .lock()
                .extend(answers.drain(..).map(|answer| format!("{answer:?}")));
            if first && let Some(line) = self.line.get() {
                line.push([Answer::Touched].into_iter());
                line.deliver();
            }
        }

        fn close(&self, why: CloseReason) {
            self.heard.lock().push(format!("{why:?}"));
        }
    }

    #[test]
    fn what_is_queued_while_somebody_delivers_comes_after_it_and_is_not_forgotten() {
        let eager = Arc::new(Eager::default());
        let line = Line::new(eager.clone());
        assert!(eager.line.set(line.clone()).is_ok());
        assert!(line.push([Answer::Deleted].into_iter()));
        assert!(
            !line.push([Answer::Released].into_iter()),
            "it is being seen to"
        );
        line.deliver();
        assert!(line.end(CloseReason::Quit));
        line.deliver();
        assert_eq!(
            *eager.heard.lock(),
            ["Deleted", "Released", "Touched", "Quit"]
        );
    }
}
