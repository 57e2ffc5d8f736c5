//! The client's side: what benchmarks and tests speak.

mod encode;
mod reply_decoder;

pub use encode::encode_request;
pub use reply_decoder::{BadReply, ReplyDecoder};
