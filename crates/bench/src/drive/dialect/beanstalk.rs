use bytes::BytesMut;
use trellis_wire::beanstalk::client::{ReplyDecoder, encode_request};
use trellis_wire::beanstalk::{Reply, Request};

use super::Dialect;

/// beanstalkd's own words.
#[derive(Debug)]
pub(super) struct Beanstalk {
    decoder: ReplyDecoder,
}

impl Beanstalk {
    pub(super) fn new() -> Self {
        Self {
            decoder: ReplyDecoder::new(),
        }
    }
}

impl Dialect for Beanstalk {
    fn ask(&mut self, request: &Request, out: &mut BytesMut) {
        encode_request(request, out);
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.decoder.feed(bytes);
    }

    fn step(&mut self, _: &mut BytesMut) -> anyhow::Result<Option<Reply>> {
        Ok(self.decoder.step().transpose()?)
    }
}
