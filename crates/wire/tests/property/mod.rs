//! What must hold for any bytes in any pieces; shared with the fuzz targets.

use trellis_wire::beanstalk::{
    Decoder, Step,
    client::{BadReply, ReplyDecoder},
};

/// Every step that `bytes` lead to when they arrive in `pieces` (sizes, repeated for ever).
///
/// Checks on the way that each step takes something, that no byte is lost or made up, and that
/// nothing is kept beyond one line or one body.
#[allow(dead_code, reason = "each user needs only one of the two")]
pub(crate) fn steps_of(bytes: &[u8], pieces: &[usize], body_bytes_max: u32) -> Vec<Step> {
    let mut decoder = Decoder::new(body_bytes_max);
    let mut steps = Vec::new();
    let mut rest = bytes;
    let mut sizes = pieces.iter().copied().filter(|size| *size > 0).cycle();
    while !rest.is_empty() {
        let size = sizes.next().unwrap_or(rest.len()).min(rest.len());
        let (piece, later) = rest.split_at(size);
        rest = later;
        decoder.feed(piece);
        loop {
            let before = decoder.buffered();
            let step = decoder.step();
            let taken = before
                .checked_sub(decoder.buffered())
                .expect("bytes out of nowhere");
            if step == Step::NeedMore {
                break;
            }
            // A line that began in an earlier piece may end with its LF alone.
            assert!(taken > 0, "{step:?} came out of nothing");
            steps.push(step);
        }
        let kept_max = 224.max(body_bytes_max as usize + 2);
        assert!(
            decoder.buffered() < kept_max,
            "{} bytes kept",
            decoder.buffered()
        );
        if let Some(pending) = decoder.pending_body() {
            let announced = decoder
                .body_announced()
                .expect("a pending body has a length");
            assert!(announced <= body_bytes_max, "too big a body was admitted");
            assert_eq!(pending + decoder.buffered(), announced as usize + 2);
        }
    }
    steps
}

/// Every reply that `bytes` hold when they arrive in `pieces`, up to the first that is none.
#[allow(dead_code, reason = "each user needs only one of the two")]
pub(crate) fn replies_of(
    bytes: &[u8],
    pieces: &[usize],
) -> Vec<Result<trellis_wire::beanstalk::Reply, BadReply>> {
    let mut decoder = ReplyDecoder::new();
    let mut replies = Vec::new();
    let mut rest = bytes;
    let mut sizes = pieces.iter().copied().filter(|size| *size > 0).cycle();
    while !rest.is_empty() {
        let size = sizes.next().unwrap_or(rest.len()).min(rest.len());
        let (piece, later) = rest.split_at(size);
        rest = later;
        decoder.feed(piece);
        while let Some(reply) = decoder.step() {
            let ends = reply.is_err();
            replies.push(reply);
            if ends {
                return replies;
            }
        }
    }
    replies
}
