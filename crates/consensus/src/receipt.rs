use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use openraft::{errors::ClientWriteError, raft::ClientWriteResult};
use tokio::sync::oneshot;

use crate::{ProposeError, raft::TypeConfig};

/// The fate of one proposal: the index at which this node has applied it. A proposal whose answer
/// was dropped has an unknown fate.
#[derive(Debug)]
pub struct Receipt(oneshot::Receiver<ClientWriteResult<TypeConfig>>);

impl Receipt {
    pub(crate) fn new(receiver: oneshot::Receiver<ClientWriteResult<TypeConfig>>) -> Self {
        Self(receiver)
    }
}

impl Future for Receipt {
    type Output = Result<u64, ProposeError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|fate| match fate {
            Ok(Ok(response)) => Ok(response.log_id.index),
            // Refused before it was appended.
            Ok(Err(ClientWriteError::ForwardToLeader(forward))) => Err(ProposeError::NotLeader {
                leader: forward.leader_id,
            }),
            Ok(Err(_)) | Err(_) => Err(ProposeError::Unknown),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raft::Responder;

    #[tokio::test]
    async fn a_dropped_responder_leaves_the_fate_unknown() {
        let (responder, receiver) = Responder::<ClientWriteResult<TypeConfig>>::pair();
        drop(responder);
        assert_eq!(Receipt::new(receiver).await, Err(ProposeError::Unknown));
    }
}
