use trellis_types::{JobId, Priority, Seconds, TubeName, limits};

use super::{Counted, Refusal, Request, lexer::Lexer};

/// What one command line says by itself.
pub(crate) enum Line {
    /// A whole request.
    Whole(Request),
    /// A put whose body follows.
    Put(PutHead),
    /// A put whose four numbers are sound and are followed by something else. Which refusal it
    /// gets depends on the announced length: the size check comes first (sharp edge 41).
    PutWithTrail(PutHead),
}

/// The four numbers of a put line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PutHead {
    pub(crate) priority: Priority,
    pub(crate) delay: Seconds,
    pub(crate) ttr: Seconds,
    pub(crate) body_bytes: u32,
}

/// A line that is no request, and the counter that it raises all the same.
pub(crate) struct Refused {
    pub(crate) refusal: Refusal,
    pub(crate) counts: Option<Counted>,
}

const BAD_FORMAT: Refused = Refused {
    refusal: Refusal::BadFormat,
    counts: None,
};

/// Reads one line, without its CRLF and at most 222 bytes long.
///
/// The order of checks is that of section 3.2. Words match by prefix, the longest first, and those
/// with arguments include one space (2.1); hence `reserve-job` alone is a `reserve` with trailing
/// bytes, but `put` alone is unknown.
pub(crate) fn parse(line: &[u8]) -> Result<Line, Refused> {
    if memchr::memchr(0, line).is_some() {
        return Err(BAD_FORMAT);
    }
    let request = match line {
        [b'p', b'u', b't', b' ', args @ ..] => return put(args),
        [b'u', b's', b'e', b' ', args @ ..] => tube(args).map(Request::Use),
        _ => return long_word(line),
    };
    request.map(Line::Whole).ok_or(BAD_FORMAT)
}

fn long_word(line: &[u8]) -> Result<Line, Refused> {
    // The first byte decides among few words; within one letter longer words stand first.
    let request = match line.first() {
        Some(b'r') => {
            if let Some(args) = line.strip_prefix(b"reserve-with-timeout ") {
                reserve_timeout(args)
            } else if let Some(args) = line.strip_prefix(b"reserve-job ") {
                job(args).map(Request::ReserveJob)
            } else if let Some(args) = line.strip_prefix(b"release ") {
                release(args)
            } else if let Some(args) = line.strip_prefix(b"reserve") {
                bare(args, Request::Reserve)
            } else {
                return unknown();
            }
        }
        Some(b'd') => match line.strip_prefix(b"delete ") {
            Some(args) => job(args).map(Request::Delete),
            None => return unknown(),
        },
        Some(b't') => match line.strip_prefix(b"touch ") {
            Some(args) => job(args).map(Request::Touch),
            None => return unknown(),
        },
        Some(b'b') => match line.strip_prefix(b"bury ") {
            Some(args) => bury(args),
            None => return unknown(),
        },
        Some(b'w') => match line.strip_prefix(b"watch ") {
            Some(args) => tube(args).map(Request::Watch),
            None => return unknown(),
        },
        Some(b'i') => match line.strip_prefix(b"ignore ") {
            Some(args) => tube(args).map(Request::Ignore),
            None => return unknown(),
        },
        Some(b'k') => {
            if let Some(args) = line.strip_prefix(b"kick ") {
                Lexer::new(args)
                    .loose()
                    .map(|bound| Request::Kick { bound })
            } else if let Some(args) = line.strip_prefix(b"kick-job ") {
                job(args).map(Request::KickJob)
            } else {
                return unknown();
            }
        }
        Some(b'p') => {
            if let Some(args) = line.strip_prefix(b"peek ") {
                job(args).map(Request::Peek)
            } else if let Some(args) = line.strip_prefix(b"peek-ready") {
                bare(args, Request::PeekReady)
            } else if let Some(args) = line.strip_prefix(b"peek-delayed") {
                bare(args, Request::PeekDelayed)
            } else if let Some(args) = line.strip_prefix(b"peek-buried") {
                bare(args, Request::PeekBuried)
            } else if let Some(args) = line.strip_prefix(b"pause-tube") {
                return pause_tube(args);
            } else {
                return unknown();
            }
        }
        Some(b's') => {
            if let Some(args) = line.strip_prefix(b"stats-job ") {
                job(args).map(Request::StatsJob)
            } else if let Some(args) = line.strip_prefix(b"stats-tube ") {
                tube(args).map(Request::StatsTube)
            } else if let Some(args) = line.strip_prefix(b"stats") {
                bare(args, Request::Stats)
            } else {
                return unknown();
            }
        }
        Some(b'l') => {
            if let Some(args) = line.strip_prefix(b"list-tubes-watched") {
                bare(args, Request::ListTubesWatched)
            } else if let Some(args) = line.strip_prefix(b"list-tubes") {
                bare(args, Request::ListTubes)
            } else if let Some(args) = line.strip_prefix(b"list-tube-used") {
                bare(args, Request::ListTubeUsed)
            } else {
                return unknown();
            }
        }
        // Whatever follows: `quitx` quits as well (sharp edge 16).
        Some(b'q') if line.starts_with(b"quit") => Some(Request::Quit),
        _ => return unknown(),
    };
    request.map(Line::Whole).ok_or(BAD_FORMAT)
}

fn unknown() -> Result<Line, Refused> {
    Err(Refused {
        refusal: Refusal::UnknownCommand,
        counts: None,
    })
}

fn bare(args: &[u8], request: Request) -> Option<Request> {
    args.is_empty().then_some(request)
}

fn tube(args: &[u8]) -> Option<TubeName> {
    TubeName::parse(args).ok()
}

fn job(args: &[u8]) -> Option<JobId> {
    let mut lexer = Lexer::new(args);
    let id = lexer.u64()?;
    lexer.end()?;
    Some(JobId(id))
}

fn put(args: &[u8]) -> Result<Line, Refused> {
    let mut lexer = Lexer::new(args);
    let mut number = || lexer.u32().ok_or(BAD_FORMAT);
    let head = PutHead {
        priority: Priority(number()?),
        delay: Seconds(number()?),
        ttr: Seconds(number()?),
        body_bytes: number()?,
    };
    Ok(if lexer.end().is_some() {
        Line::Put(head)
    } else {
        Line::PutWithTrail(head)
    })
}

/// What follows the digits is ignored, as beanstalkd does (sharp edge 27).
fn reserve_timeout(args: &[u8]) -> Option<Request> {
    let seconds = Lexer::new(args).u32()?;
    (seconds <= limits::RESERVE_TIMEOUT_SECONDS_MAX)
        .then_some(Request::ReserveWithTimeout(Seconds(seconds)))
}

fn release(args: &[u8]) -> Option<Request> {
    let mut lexer = Lexer::new(args);
    let job = JobId(lexer.u64()?);
    let priority = Priority(lexer.u32()?);
    let delay = Seconds(lexer.u32()?);
    lexer.end()?;
    Some(Request::Release {
        job,
        priority,
        delay,
    })
}

fn bury(args: &[u8]) -> Option<Request> {
    let mut lexer = Lexer::new(args);
    let job = JobId(lexer.u64()?);
    let priority = Priority(lexer.u32()?);
    lexer.end()?;
    Some(Request::Bury { job, priority })
}

/// Counted before the name is checked for a leading hyphen and its length (2.5, 3.2).
fn pause_tube(args: &[u8]) -> Result<Line, Refused> {
    let mut lexer = Lexer::new(args);
    let name = lexer.name();
    if name.is_empty() {
        return Err(BAD_FORMAT);
    }
    let delay = Seconds(lexer.u32().ok_or(BAD_FORMAT)?);
    lexer.end().ok_or(BAD_FORMAT)?;
    match TubeName::parse(name) {
        Ok(tube) => Ok(Line::Whole(Request::PauseTube { tube, delay })),
        Err(_) => Err(Refused {
            refusal: Refusal::BadFormat,
            counts: Some(Counted::PauseTube),
        }),
    }
}
