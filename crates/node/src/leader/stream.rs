use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{Stream, StreamExt, stream::BoxStream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use trellis_rpc::{
    pb::{self, forward_down::Down, forward_end::Reason, forward_up::Up},
    queue::check_batch,
};
use trellis_types::{NodeId, OriginId, Run};

use super::{Office, OfficeEvent, office::DOWN_MAX};
use crate::mind::Inner;

/// How long, and how often, an office that opens is looked for.
const OPENING_STEPS: u32 = 200;
const OPENING_STEP: Duration = Duration::from_millis(5);

/// Serves one stream of batches and pings from `from`. The same for other nodes and, in-process,
/// for the leader's own origin.
pub(crate) fn serve_forward(
    core: Arc<Inner>,
    from: Option<NodeId>,
    up: impl Stream<Item = Result<pb::ForwardUp, Status>> + Send + 'static,
) -> BoxStream<'static, Result<pb::ForwardDown, Status>> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let stream = NEXT.fetch_add(1, Ordering::Relaxed);
    let (down, answers) = mpsc::channel(DOWN_MAX);
    tokio::spawn(async move {
        if let Err(reason) = listen(&core, from, stream, &down, up).await {
            let _ = down.try_send(Down::End(pb::ForwardEnd {
                reason: reason.into(),
            }));
        }
    });
    ReceiverStream::new(answers)
        .map(|down| Ok(pb::ForwardDown { down: Some(down) }))
        .boxed()
}

/// The office of that term. A leader that has only just been elected is waited for.
async fn office_of(core: &Inner, term: u64) -> Option<Office> {
    for _ in 0..OPENING_STEPS {
        let office = core.office.lock().clone();
        match office {
            Some(office) => return (office.term == term).then_some(office),
            None if core.leads(term) => tokio::time::sleep(OPENING_STEP).await,
            None => return None,
        }
    }
    None
}

async fn listen(
    core: &Inner,
    from: Option<NodeId>,
    stream: u64,
    down: &mpsc::Sender<Down>,
    up: impl Stream<Item = Result<pb::ForwardUp, Status>>,
) -> Result<(), Reason> {
    let mut up = pin!(up);
    let first = up.next().await;
    let Some(Ok(pb::ForwardUp {
        up: Some(Up::Open(open)),
    })) = first
    else {
        return Err(Reason::Doubt);
    };
    let origin = open
        .origin
        .map(|origin| OriginId {
            node: NodeId(origin.node),
            run: Run(origin.run),
        })
        .filter(|origin| from.is_none_or(|from| from == origin.node))
        .ok_or(Reason::Doubt)?;
    let office = office_of(core, open.term).await.ok_or(Reason::NotLeader)?;
    let tell = async |event| {
        office
            .events
            .send(event)
            .await
            .map_err(|_| Reason::NotLeader)
    };
    tell(OfficeEvent::Open {
        stream,
        origin,
        down: down.clone(),
    })
    .await?;
    let result = loop {
        let message = tokio::select! {
            message = up.next() => message,
            // The leader has ended the stream.
            () = down.closed() => break Ok(()),
        };
        let event = match message {
            Some(Ok(pb::ForwardUp {
                up: Some(Up::Batch(bytes)),
            })) => match check_batch(&bytes) {
                Ok(checked) if checked.origin == origin => OfficeEvent::Batch {
                    stream,
                    origin,
                    seq: checked.seq,
                    commands: checked.commands,
                    bytes,
                },
                _ => break Err(Reason::Doubt),
            },
            Some(Ok(pb::ForwardUp {
                up: Some(Up::Pong(pong)),
            })) => OfficeEvent::Pong {
                stream,
                number: pong.number,
                applied: pong.applied,
            },
            Some(Ok(_)) => break Err(Reason::Doubt),
            Some(Err(_)) | None => break Ok(()),
        };
        tell(event).await?;
    };
    let _ = tell(OfficeEvent::Closed { stream }).await;
    result
}
