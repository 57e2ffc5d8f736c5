use std::{future::Future, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::ReadError;

type Answer = Result<u64, ReadError>;

/// Lets all reads of the moment share one question to the majority. A read joins only a round that
/// has not started: the leadership must be confirmed after the read was asked for.
#[derive(Clone, Default)]
pub(crate) struct Reads(Arc<Mutex<Round>>);

#[derive(Default)]
struct Round {
    /// Whether a round is under way.
    running: bool,
    /// Who waits for the next one.
    next: Vec<oneshot::Sender<Answer>>,
}

impl Reads {
    /// The answer of the next round; `ask` starts one. A task of its own drives the rounds, so that
    /// a caller that goes away does no harm to others.
    pub(crate) async fn join<F>(&self, ask: impl Fn() -> F + Send + 'static) -> Answer
    where
        F: Future<Output = Answer> + Send,
    {
        let (sender, receiver) = oneshot::channel();
        let start = {
            let mut round = self.0.lock();
            round.next.push(sender);
            !std::mem::replace(&mut round.running, true)
        };
        if start {
            let rounds = self.0.clone();
            tokio::spawn(async move {
                loop {
                    let waiting = {
                        let mut round = rounds.lock();
                        if round.next.is_empty() {
                            round.running = false;
                            break;
                        }
                        std::mem::take(&mut round.next)
                    };
                    let answer = ask().await;
                    for waiter in waiting {
                        let _ = waiter.send(answer.clone());
                    }
                }
            });
        }
        receiver.await.unwrap_or(Err(ReadError::Stopped))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures::future::join_all;
    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn reads_of_the_moment_share_a_round_and_late_ones_wait_for_the_next() {
        let reads = Reads::default();
        let rounds = Arc::new(AtomicU64::new(0));
        let gate = Arc::new(Semaphore::new(0));
        let read = || {
            let (reads, rounds, gate) = (reads.clone(), rounds.clone(), gate.clone());
            tokio::spawn(async move {
                reads
                    .join(move || {
                        let nth = rounds.fetch_add(1, Ordering::SeqCst);
                        let gate = gate.clone();
                        async move {
                            gate.acquire().await.expect("open").forget();
                            Ok(nth)
                        }
                    })
                    .await
            })
        };
        let first = read();
        while rounds.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let late: Vec<_> = (0..100).map(|_| read()).collect();
        while reads.0.lock().next.len() < 100 {
            tokio::task::yield_now().await;
        }
        gate.add_permits(2);
        assert_eq!(first.await.expect("no panic"), Ok(0));
        for answer in join_all(late).await {
            assert_eq!(answer.expect("no panic"), Ok(1));
        }
        assert_eq!(rounds.load(Ordering::SeqCst), 2);
    }
}
