//! The beanstalk protocol, both directions.
//!
//! A server feeds a [`Decoder`] and encodes [`Reply`]s; a client encodes [`Request`]s and feeds a
//! [`client::ReplyDecoder`]. Source: protocol specification, sections 1 to 3, 5 and 7.1.

pub mod client;
pub mod yaml;

mod counted;
mod decimal;
mod decoder;
mod lexer;
mod line;
mod refusal;
mod reply;
mod request;

pub use counted::Counted;
pub use decoder::{Decoder, SHARED_BODY_BYTES_MIN, Step};
pub use refusal::Refusal;
pub use reply::Reply;
pub use request::Request;
