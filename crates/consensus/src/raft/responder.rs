use openraft::OptionalSend;
use tokio::sync::oneshot;

use super::TypeConfig;

/// Takes the fate of a proposal to whoever waits for it. Dropped without a word it means that the
/// fate is unknown.
pub struct Responder<T>(oneshot::Sender<T>);

impl<T> Responder<T> {
    pub(crate) fn pair() -> (Self, oneshot::Receiver<T>) {
        let (sender, receiver) = oneshot::channel();
        (Self(sender), receiver)
    }
}

impl<T: OptionalSend + 'static> openraft::raft::responder::Responder<TypeConfig, T>
    for Responder<T>
{
    fn on_complete(self, result: T) {
        // Nobody may wait any more; that is their business.
        let _ = self.0.send(result);
    }
}
