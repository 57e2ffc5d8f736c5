//! A stair beside the house: the protocol tried in every order that a small world allows, and whole
//! nodes tried in simulated time.
//!
//! [`model`] holds a world of two nodes with the product's own machine, origins and merger in it,
//! over an abstract log. It is explored to its end, or walked through at random; and each rule of
//! the protocol is dropped in turn to see that something notices.

pub mod model;
pub mod whole;
