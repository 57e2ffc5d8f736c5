//! The machine, looked at from outside: stories for every rule, a naive twin under random entries,
//! and a paper cluster. Numbers in names are those of the protocol specification, section 9
//! ("sharp edges").

mod absurd;
mod batches;
mod classics;
mod image;
mod life;
mod limits;
mod naive;
mod origins;
mod paper_cluster;
mod pausing;
mod random;
mod settling;
mod story;
mod suspension;
mod tubes;
mod twin;
mod waiting;
mod warnings;
