//! Each promise broken once, in as few lines as it takes; and beside it the history that looks
//! alike and is sound.

mod jobs;
mod rest;
mod standstill;
mod story;
mod tubes;
