//! Where talks are played: on real sockets, or on the bare machine with simulated time.

mod bare;
mod tcp;

pub use bare::{BareHouse, BareStage};
pub use tcp::{TcpHouse, TcpStage};

use std::{io, time::Duration};

use crate::talk::Talk;

/// Whose words are to be expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Troupe {
    /// Trellis, on whatever stage.
    Trellis,
    /// The original.
    Beanstalkd,
}

/// What came from the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// At least one byte.
    Bytes(Vec<u8>),
    /// The server closed the connection.
    End,
    /// Nothing for as long as was asked.
    Nothing,
}

/// A server and some named connections to it. Time is real or simulated: only the stage knows.
pub trait Stage {
    /// Opens a connection for `who`, in place of an earlier one.
    ///
    /// # Errors
    ///
    /// The server does not take it.
    fn connect(&mut self, who: &str) -> io::Result<()>;

    /// Sends `bytes` as they are.
    ///
    /// # Errors
    ///
    /// The connection is gone.
    fn send(&mut self, who: &str, bytes: &[u8]) -> io::Result<()>;

    /// What arrives next for `who`, waiting `patience` at most.
    ///
    /// # Errors
    ///
    /// The connection failed otherwise than by closing.
    fn receive(&mut self, who: &str, patience: Duration) -> io::Result<Heard>;

    /// Shuts the sending side of `who`'s connection.
    ///
    /// # Errors
    ///
    /// The connection is gone.
    fn half_close(&mut self, who: &str) -> io::Result<()>;

    /// Closes `who`'s connection.
    ///
    /// # Errors
    ///
    /// There is none.
    fn close(&mut self, who: &str) -> io::Result<()>;

    /// Lets that much time go by.
    fn pass_time(&mut self, time: Duration);

    /// Time since the stage was set up.
    fn now(&self) -> Duration;

    /// How much earlier than written an answer may seem to come, because clocks round.
    fn early(&self) -> Duration;

    /// How much later than written an answer may come.
    fn late(&self) -> Duration;

    /// Sends SIGUSR1 to the server, or does what it would do.
    ///
    /// # Errors
    ///
    /// This stage's server is not its own.
    fn drain(&mut self) -> io::Result<()>;

    /// Kills the server and starts it again on its data, with other flags if given.
    ///
    /// # Errors
    ///
    /// This stage's server is not its own, or does not come back.
    fn restart(&mut self, flags: Option<&[String]>) -> io::Result<()>;

    /// Stops the server for that long: time goes by and it does nothing.
    ///
    /// # Errors
    ///
    /// This stage's server is not its own.
    fn stall(&mut self, time: Duration) -> io::Result<()>;
}

/// A place with stages: sets one up for each talk.
pub trait House: Sync {
    /// Its name in reports.
    fn name(&self) -> &str;

    /// Whose words its servers speak.
    fn troupe(&self) -> Troupe;

    /// A stage for this talk, or why there can be none.
    ///
    /// # Errors
    ///
    /// The talk needs something that this house has not got (`Ok(Err(reason))`), or the server
    /// could not be started.
    fn open(&self, talk: &Talk) -> io::Result<Result<Box<dyn Stage>, String>>;
}
