//! A kick of many is carried out in portions, one entry of the log each, so that others have their
//! turn between them (COMPAT, "kick").

use std::time::{Duration, Instant};

use trellis_queue::Command;
use trellis_types::limits::KICK_PORTION_JOBS;

use super::{Connection, State};
use crate::{Answer, Call};

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Kicking {
    /// So many jobs are kicked.
    pub(super) kicked: u32,
    /// So many were there when it began. What workers bury again between portions lies behind them
    /// and is not kicked a second time.
    goal: Option<u32>,
    /// No job was buried, so it is the delayed ones.
    delayed: bool,
    /// The next portion is not submitted before this.
    rests: Option<Instant>,
}

/// While others work a kick rests between portions: so many times as long as the last one took.
const REST_FACTOR: u32 = 3;
const REST_MAX: Duration = Duration::from_millis(20);

impl Kicking {
    /// How many jobs the next portion of a kick of `bound` may move.
    fn portion(self, bound: u32) -> u32 {
        let bound = self.goal.map_or(bound, |goal| bound.min(goal));
        bound.saturating_sub(self.kicked).min(KICK_PORTION_JOBS)
    }

    pub(super) fn rests(self, now: Instant) -> bool {
        self.rests.is_some_and(|until| until > now)
    }

    /// The next portion has moved `count` jobs; there are `left` of that kind. Whether there may be
    /// more to do.
    fn goes_on(&mut self, bound: u32, count: u32, left: u32) -> bool {
        let full = count >= self.portion(bound);
        self.kicked = self.kicked.saturating_add(count);
        if self.kicked == 0 && !self.delayed {
            self.delayed = true;
            return true;
        }
        let goal = *self.goal.get_or_insert(count.saturating_add(left));
        full && self.kicked < bound.min(goal)
    }
}

impl Connection {
    /// The command of a call at `place` as the session stands now: of a large kick, its next portion.
    pub(super) fn command_of(&self, place: usize, call: &Call) -> Option<Command> {
        match call {
            Call::Kick { bound } if *bound > KICK_PORTION_JOBS => {
                let kicking = self.slots[place].kicking;
                Some(Command::KickPortion {
                    tube: self.used.clone(),
                    bound: kicking.portion(*bound),
                    delayed: kicking.delayed,
                })
            }
            call => self.command(call),
        }
    }

    /// A portion of a kick has moved `count` jobs and has `left` so many: the kick's answer, if that
    /// was all. Else when it may go on, which is later than `now` if it `shares` the nodes with
    /// others: it is held again, and nothing behind it was submitted.
    pub(in crate::origin) fn kicked(
        &mut self,
        place: usize,
        (count, left): (u32, u32),
        now: Instant,
        shares: bool,
    ) -> Result<Answer, Instant> {
        let slot = &mut self.slots[place];
        let Call::Kick { bound } = slot.call else {
            return Ok(Answer::Kicked(count));
        };
        self.kicks = false;
        if !slot.kicking.goes_on(bound, count, left) {
            return Ok(Answer::Kicked(slot.kicking.kicked));
        }
        let took = slot
            .since
            .map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let goes_on = match shares {
            true => now + (took * REST_FACTOR).min(REST_MAX),
            false => now,
        };
        slot.kicking.rests = Some(goes_on);
        slot.state = State::Held;
        slot.since = Some(goes_on);
        self.held += 1;
        self.held_bytes += slot.call.bytes();
        Err(goes_on)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the portions of a kick of `bound` ask for, until it is over: (bound, delayed).
    fn portions(bound: u32, mut buried: u32, mut delayed: u32) -> (Vec<(u32, bool)>, u32) {
        let (mut kicking, mut asked) = (Kicking::default(), Vec::new());
        loop {
            let portion = kicking.portion(bound);
            asked.push((portion, kicking.delayed));
            let there = match kicking.delayed {
                true => &mut delayed,
                false => &mut buried,
            };
            let count = portion.min(*there);
            *there -= count;
            let left = *there;
            if !kicking.goes_on(bound, count, left) {
                return (asked, kicking.kicked);
            }
        }
    }

    #[test]
    fn a_kick_ends_with_the_last_buried_job() {
        let all = KICK_PORTION_JOBS;
        assert_eq!(
            portions(9 * all, 2 * all, 5),
            (vec![(all, false); 2], 2 * all),
            "and not with delayed ones, though the second portion was full"
        );
        assert_eq!(portions(9 * all, 7, 5), (vec![(all, false)], 7));
    }

    #[test]
    fn delayed_jobs_are_kicked_only_when_none_is_buried() {
        let all = KICK_PORTION_JOBS;
        assert_eq!(
            portions(9 * all, 0, all + 1),
            (vec![(all, false), (all, true), (1, true)], all + 1)
        );
        assert_eq!(
            portions(9 * all, 0, 0),
            (vec![(all, false), (all, true)], 0)
        );
    }

    #[test]
    fn a_kick_ends_at_its_bound() {
        let all = KICK_PORTION_JOBS;
        assert_eq!(
            portions(all + 1, 9 * all, 0),
            (vec![(all, false), (1, false)], all + 1)
        );
    }

    /// Found on paper: with workers that bury as fast as it kicks, a kick of everything never ended.
    #[test]
    fn what_is_buried_again_meanwhile_is_not_kicked_again() {
        let all = KICK_PORTION_JOBS;
        let (mut kicking, mut asked) = (Kicking::default(), Vec::new());
        loop {
            let portion = kicking.portion(u32::MAX);
            asked.push(portion);
            // Each portion finds as many again as the first one found.
            if !kicking.goes_on(u32::MAX, portion, all + 7) {
                break;
            }
        }
        assert_eq!(asked, [all, all, 7]);
        assert_eq!(kicking.kicked, 2 * all + 7);
    }
}
