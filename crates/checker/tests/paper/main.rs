//! Histories of a queue on paper: the real machine, simulated clients, nodes that die, all in
//! simulated time. What a sound queue does is accepted, whatever the seed; what a broken one does
//! is refused.

mod bugs;
mod misdeeds;
mod queue;
mod reading;
mod sound;
