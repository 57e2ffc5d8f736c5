//! What a node does while it leads: takes the batches of all origins, stamps time, ticks, keeps
//! leases. Everything ends with the term, and with the loss of the majority's acknowledgement.

mod acknowledged;
mod merge;
mod office;
mod presence;
mod stream;
mod term;

pub(crate) use merge::Merger;
#[cfg(feature = "model")]
pub use merge::model::ModelMerger;
pub(crate) use office::{Office, OfficeEvent, watch_role};
pub(crate) use presence::Presence;
pub(crate) use stream::serve_forward;
