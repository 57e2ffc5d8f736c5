//! Between [`trellis_queue`] and protobuf: batches, the leader's commands, rows.

mod batch;
mod item;
mod leader;
mod row;

pub use batch::{BadFrame, BatchBuilder, Checked, LEVEL, check_batch, decode_batch, encode_batch};
pub use item::encode_item;
pub use leader::{decode_leader, encode_leader};
pub use row::{BadRow, append_row, decode_row, encode_row};
