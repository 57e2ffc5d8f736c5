use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::{Ended, Exit};

/// What a person or a supervisor tells the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// SIGTERM, SIGINT, SIGHUP (a closed terminal): stop. The first time in good order, the second time at once.
    Stop,
    /// SIGUSR1: take no puts any more (beanstalkd's drain mode).
    RefusePuts,
}

/// The signals that a node listens to.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    refuse_puts: Signal,
    /// SIGUSR2, SIGALRM: without a listener they would end the process at once.
    _ignored: [Signal; 2],
}

impl Signals {
    /// Listens from now on; none that comes later is lost.
    pub(super) fn new() -> Result<Self, Ended> {
        let listen =
            |kind| signal(kind).map_err(|error| Ended::new(Exit::System, error.to_string()));
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hang_up: listen(SignalKind::hangup())?,
            refuse_puts: listen(SignalKind::user_defined1())?,
            _ignored: [
                listen(SignalKind::user_defined2())?,
                listen(SignalKind::alarm())?,
            ],
        })
    }

    /// The next one.
    pub(super) async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.terminate.recv() => Told::Stop,
            _ = self.interrupt.recv() => Told::Stop,
            _ = self.hang_up.recv() => Told::Stop,
            _ = self.refuse_puts.recv() => Told::RefusePuts,
        }
    }
}
