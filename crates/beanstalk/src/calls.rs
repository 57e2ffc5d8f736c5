use trellis_node::Call;
use trellis_wire::beanstalk::{Counted, Refusal, Request};

use crate::replies::tag_of;

/// Translates a request.
pub(crate) fn call(request: Request) -> Call {
    match request {
        Request::Put {
            priority,
            delay,
            ttr,
            body,
        } => Call::Put {
            priority,
            delay,
            ttr,
            body,
        },
        Request::Use(tube) => Call::Use(tube),
        Request::Watch(tube) => Call::Watch(tube),
        Request::Ignore(tube) => Call::Ignore(tube),
        Request::Reserve => Call::Reserve { timeout: None },
        Request::ReserveWithTimeout(timeout) => Call::Reserve {
            timeout: Some(timeout),
        },
        Request::ReserveJob(job) => Call::ReserveJob(job),
        Request::Delete(job) => Call::Delete(job),
        Request::Release {
            job,
            priority,
            delay,
        } => Call::Release {
            job,
            priority,
            delay,
        },
        Request::Bury { job, priority } => Call::Bury { job, priority },
        Request::Touch(job) => Call::Touch(job),
        Request::Kick { bound } => Call::Kick { bound },
        Request::KickJob(job) => Call::KickJob(job),
        Request::Peek(job) => Call::Peek(job),
        Request::PeekReady => Call::PeekReady,
        Request::PeekDelayed => Call::PeekDelayed,
        Request::PeekBuried => Call::PeekBuried,
        Request::StatsJob(job) => Call::StatsJob(job),
        Request::StatsTube(tube) => Call::StatsTube(tube),
        Request::Stats => Call::Stats,
        Request::ListTubes => Call::ListTubes,
        Request::ListTubesWatched => Call::ListTubesWatched,
        Request::ListTubeUsed => Call::ListTubeUsed,
        Request::PauseTube { tube, delay } => Call::PauseTube { tube, delay },
        Request::Quit => Call::Quit,
    }
}

/// A refusal goes through the node all the same: it has its place among the answers.
pub(crate) fn refused(refusal: Refusal, counts: Option<Counted>) -> Call {
    Call::Refused {
        tag: tag_of(refusal),
        counts,
        producer: refusal.makes_producer(),
    }
}
