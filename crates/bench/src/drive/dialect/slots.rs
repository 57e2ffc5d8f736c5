use std::collections::VecDeque;

use trellis_wire::beanstalk::Reply;

/// Answers that a server gives in an order of its own, put back into that of the requests.
#[derive(Debug)]
pub(super) struct Slots<K> {
    waiting: VecDeque<(K, Option<Reply>)>,
}

impl<K: Copy> Slots<K> {
    pub(super) fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
        }
    }

    /// A request was made; its answer will be known by `key`.
    pub(super) fn open(&mut self, key: K) {
        self.waiting.push_back((key, None));
    }

    /// A request was made whose answer is known already.
    pub(super) fn answered(&mut self, key: K, reply: Reply) {
        self.waiting.push_back((key, Some(reply)));
    }

    /// Gives the oldest request without an answer that `is_it` this one. False if there is none.
    pub(super) fn fill(&mut self, is_it: impl Fn(K) -> bool, reply: Reply) -> bool {
        let slot = self
            .waiting
            .iter_mut()
            .find(|(key, answer)| answer.is_none() && is_it(*key));
        match slot {
            Some((_, answer)) => {
                *answer = Some(reply);
                true
            }
            None => false,
        }
    }

    /// The oldest request's answer, if it is known.
    pub(super) fn take(&mut self) -> Option<Reply> {
        self.waiting.front()?.1.as_ref()?;
        self.waiting.pop_front()?.1
    }

    /// True if nothing was asked that was not answered.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_leave_in_the_order_of_the_requests() {
        let mut slots = Slots::new();
        slots.open(1);
        slots.answered(2, Reply::Deleted);
        slots.open(1);
        assert_eq!(slots.take(), None, "the first has no answer yet");
        assert!(slots.fill(|key| key == 1, Reply::Released));
        assert_eq!(slots.take(), Some(Reply::Released));
        assert_eq!(slots.take(), Some(Reply::Deleted));
        assert_eq!(slots.take(), None);
        assert!(!slots.fill(|key| key == 2, Reply::Released));
        assert!(!slots.is_empty());
    }
}
