//! The numbered sharp edges of the protocol specification (section 9) that a parser alone decides.
//! Each test carries the edge's number; what needs jobs, tubes or time is told by the talks.

mod bodies;
mod counters;
mod lines;

use trellis_types::{Priority, Seconds, TubeName};
use trellis_wire::beanstalk::{Counted, Decoder, Refusal, Request, Step};

pub(crate) const BODY_BYTES_MAX: u32 = 65_535;

/// Everything that `bytes` say to a fresh connection, until more is needed.
pub(crate) fn said(bytes: &[u8]) -> Vec<Step> {
    let mut decoder = Decoder::new(BODY_BYTES_MAX);
    decoder.feed(bytes);
    drain(&mut decoder)
}

pub(crate) fn drain(decoder: &mut Decoder) -> Vec<Step> {
    let mut steps = Vec::new();
    loop {
        match decoder.step() {
            Step::NeedMore => return steps,
            step => steps.push(step),
        }
    }
}

pub(crate) fn line(text: &str) -> Step {
    let mut steps = said(format!("{text}\r\n").as_bytes());
    assert_eq!(steps.len(), 1, "{text:?} said {steps:?}");
    steps.remove(0)
}

pub(crate) fn refuse(refusal: Refusal, counts: Option<Counted>) -> Step {
    Step::Refuse { refusal, counts }
}

pub(crate) fn bad_format() -> Step {
    refuse(Refusal::BadFormat, None)
}

pub(crate) fn unknown() -> Step {
    refuse(Refusal::UnknownCommand, None)
}

pub(crate) fn used() -> Step {
    Step::Request(Request::ListTubeUsed)
}

pub(crate) fn tube(name: &str) -> TubeName {
    TubeName::parse(name.as_bytes()).expect("a tube name")
}

pub(crate) fn put(pri: u32, delay: u32, ttr: u32, body: &[u8]) -> Step {
    Step::Request(Request::Put {
        priority: Priority(pri),
        delay: Seconds(delay),
        ttr: Seconds(ttr),
        body: body.to_vec().into(),
    })
}

#[track_caller]
pub(crate) fn all(lines: &[&str], expected: fn() -> Step) {
    for text in lines {
        assert_eq!(line(text), expected(), "{text:?}");
    }
}
