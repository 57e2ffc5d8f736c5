use crate::Invariant;

/// One thing that the model insists on. When a history has no order, the rule whose dropping gives
/// it one names what was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Looks are of the present.
    Reads,
    /// What `stats-job` counts is what happened.
    Counters,
    /// Only the holder settles a job.
    Outdated,
    /// A hold lasts its TTR; dropped, half of it will do.
    HoldEarly,
    /// A hold does not last longer than its TTR.
    HoldLate,
    /// A delay is waited for.
    DelayEarly,
    /// A delay ends.
    DelayLate,
    /// A held job is not given to anybody else.
    SingleHold,
    /// A hold lasts at all.
    Hold,
    /// Refusals are of the present.
    Refusals,
    /// What is gone stays away.
    Ended,
    /// What is there stays there.
    Kept,
    /// The first by (priority, id) is delivered.
    Order,
    /// `TIMED_OUT` means that nothing is ready.
    Emptiness,
    /// `peek-ready` and the like show the first.
    Heads,
    /// A paused tube delivers nothing.
    Pauses,
    /// `stats-tube` counts what is there.
    Counts,
}

impl Rule {
    /// For one job, in the order in which they are dropped.
    pub(crate) const OF_A_JOB: [Self; 12] = [
        Self::Counters,
        Self::DelayEarly,
        Self::DelayLate,
        Self::HoldEarly,
        Self::HoldLate,
        Self::Reads,
        Self::Outdated,
        Self::SingleHold,
        Self::Hold,
        Self::Refusals,
        Self::Ended,
        Self::Kept,
    ];

    /// For a tube whose jobs are sound one by one.
    pub(crate) const OF_A_TUBE: [Self; 5] = [
        Self::Heads,
        Self::Counts,
        Self::Emptiness,
        Self::Order,
        Self::Pauses,
    ];

    /// What is broken if this rule is.
    pub(crate) fn invariant(self) -> Invariant {
        match self {
            Self::Reads | Self::Refusals | Self::Heads | Self::Emptiness => Invariant::I17,
            Self::Counters | Self::Counts => Invariant::I10,
            Self::Outdated => Invariant::I4,
            Self::HoldEarly | Self::HoldLate | Self::Hold => Invariant::I5,
            Self::DelayEarly | Self::DelayLate => Invariant::I9,
            Self::SingleHold => Invariant::I3,
            Self::Ended => Invariant::I2,
            Self::Kept => Invariant::I1,
            Self::Order | Self::Pauses => Invariant::I8,
        }
    }

    /// What happened then, in words.
    pub(crate) fn breach(self) -> &'static str {
        match self {
            Self::Reads => "an answer shows a state that was over, or never was",
            Self::Counters => "stats-job counts something else than what happened",
            Self::Outdated => "somebody changed it who no longer held it",
            Self::HoldEarly => "its hold ended before the TTR had run out",
            Self::HoldLate => "its hold outlived the TTR",
            Self::DelayEarly => "it matured before its delay was over",
            Self::DelayLate => "it was still delayed after its delay was over",
            Self::Hold => {
                "its hold ended although its holder was alive and the TTR had not run out"
            }
            Self::Refusals => "somebody was refused what a job in that state allows",
            Self::SingleHold => "two held it at the same time",
            Self::Ended => "it came back after it had been deleted",
            Self::Kept => "it is gone, and nobody deleted it",
            Self::Order => "a worse job was delivered while a better one was ready",
            Self::Emptiness => "somebody was told that nothing is ready while something was",
            Self::Heads => "a peek shows a job that was not the first",
            Self::Pauses => "a paused tube delivered",
            Self::Counts => "stats-tube counts something else than what is there",
        }
    }
}

/// The rules that are in force.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules(u32);

impl Rules {
    /// All of them.
    pub(crate) const ALL: Self = Self(u32::MAX);

    /// Without one.
    pub(crate) fn without(self, rule: Rule) -> Self {
        Self(self.0 & !(1 << rule as u32))
    }

    /// Whether a rule is in force.
    pub(crate) fn have(self, rule: Rule) -> bool {
        self.0 & (1 << rule as u32) != 0
    }
}
