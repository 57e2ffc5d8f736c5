use bytes::{BufMut, Bytes, BytesMut};
use prost::{
    Message,
    encoding::{WireType, decode_varint, encode_key, encode_varint, encoded_len_varint, key_len},
};
use trellis_queue::{Command, Item};
use trellis_types::{ConnectionId, JobId, Priority, Seconds, TubeName};

use crate::pb;

/// The bytes of one item, as they stand in a batch.
pub fn encode_item(item: &Item) -> Bytes {
    let mut buffer = BytesMut::with_capacity(encoded_len(item));
    encode_into(item, &mut buffer);
    buffer.freeze()
}

pub(super) fn encoded_len(item: &Item) -> usize {
    let mut length = Length(0);
    length.uint(1, item.connection.0);
    if let Some(number) = number(&item.command) {
        let inner = inner_len(&item.command);
        length.0 += key_len(number) + encoded_len_varint(inner as u64) + inner;
    }
    length.0
}

pub(super) fn encode_into(item: &Item, buffer: &mut BytesMut) {
    buffer.uint(1, item.connection.0);
    if let Some(number) = number(&item.command) {
        encode_key(number, WireType::LengthDelimited, buffer);
        encode_varint(inner_len(&item.command) as u64, buffer);
        fields(&item.command, buffer);
    }
}

fn inner_len(command: &Command) -> usize {
    let mut length = Length(0);
    fields(command, &mut length);
    length.0
}

/// Which field of `Item` carries the command; none for what never was one.
fn number(command: &Command) -> Option<u32> {
    Some(match command {
        Command::Put { .. } => 2,
        Command::Reserve { .. } => 3,
        Command::ReserveJob { .. } => 4,
        Command::Delete { .. } => 5,
        Command::Release { .. } => 6,
        Command::Bury { .. } => 7,
        Command::Touch { .. } => 8,
        Command::Kick { .. } => 9,
        Command::KickJob { .. } => 10,
        Command::PauseTube { .. } => 11,
        Command::EndWait => 12,
        Command::CloseSession => 13,
        Command::TubeRef { .. } => 14,
        Command::KickPortion { .. } => 15,
        Command::Undecodable => return None,
    })
}

/// The fields of a command, named once and used twice: to measure and to write. Written by hand
/// because the generated messages would have every name and body copied first; the tests read the
/// result with the generated ones.
fn fields(command: &Command, out: &mut impl Fields) {
    match command {
        Command::Put {
            tube,
            priority,
            delay,
            ttr,
            body,
        } => {
            out.bytes(1, tube.as_str().as_bytes());
            out.uint(2, priority.0.into());
            out.uint(3, delay.0.into());
            out.uint(4, ttr.0.into());
            out.bytes(5, body);
        }
        Command::Reserve { tubes, timeout } => {
            for tube in tubes {
                out.bytes(1, tube.as_str().as_bytes());
            }
            if let Some(timeout) = timeout {
                out.present(2, timeout.0.into());
            }
        }
        Command::ReserveJob { job }
        | Command::Delete { job }
        | Command::Touch { job }
        | Command::KickJob { job } => out.uint(1, job.0),
        Command::Release {
            job,
            priority,
            delay,
        } => {
            out.uint(1, job.0);
            out.uint(2, priority.0.into());
            out.uint(3, delay.0.into());
        }
        Command::Bury { job, priority } => {
            out.uint(1, job.0);
            out.uint(2, priority.0.into());
        }
        Command::Kick { tube, bound } => {
            out.bytes(1, tube.as_str().as_bytes());
            out.uint(2, (*bound).into());
        }
        Command::KickPortion {
            tube,
            bound,
            delayed,
        } => {
            out.bytes(1, tube.as_str().as_bytes());
            out.uint(2, (*bound).into());
            out.uint(3, (*delayed).into());
        }
        Command::PauseTube { tube, delay } => {
            out.bytes(1, tube.as_str().as_bytes());
            out.uint(2, delay.0.into());
        }
        Command::TubeRef { tube, set } => {
            out.bytes(1, tube.as_str().as_bytes());
            out.uint(2, (*set).into());
        }
        Command::EndWait | Command::CloseSession | Command::Undecodable => {}
    }
}

/// Where fields go. Like every proto3 encoder, `uint` and `bytes` leave out what is the default.
trait Fields {
    fn present(&mut self, number: u32, value: u64);
    fn bytes(&mut self, number: u32, value: &[u8]);

    fn uint(&mut self, number: u32, value: u64) {
        if value != 0 {
            self.present(number, value);
        }
    }
}

struct Length(usize);

impl Fields for Length {
    fn present(&mut self, number: u32, value: u64) {
        self.0 += key_len(number) + encoded_len_varint(value);
    }

    fn bytes(&mut self, number: u32, value: &[u8]) {
        if !value.is_empty() {
            self.0 += key_len(number) + encoded_len_varint(value.len() as u64) + value.len();
        }
    }
}

impl Fields for BytesMut {
    fn present(&mut self, number: u32, value: u64) {
        encode_key(number, WireType::Varint, self);
        encode_varint(value, self);
    }

    fn bytes(&mut self, number: u32, value: &[u8]) {
        if !value.is_empty() {
            encode_key(number, WireType::LengthDelimited, self);
            encode_varint(value.len() as u64, self);
            self.put_slice(value);
        }
    }
}

/// Never fails: what is no command is [`Command::Undecodable`].
pub(super) fn decode(raw: Bytes) -> Item {
    let connection = leading_connection(&raw);
    match pb::Item::decode(raw) {
        Ok(item) => Item {
            connection: ConnectionId(item.connection),
            command: item
                .command
                .and_then(command)
                .unwrap_or(Command::Undecodable),
        },
        Err(_) => Item {
            connection,
            command: Command::Undecodable,
        },
    }
}

/// The connection stands first, so that it is known even of an item that is rubbish behind it.
fn leading_connection(raw: &[u8]) -> ConnectionId {
    match raw {
        [0x08, rest @ ..] => ConnectionId(decode_varint(&mut &*rest).unwrap_or(0)),
        _ => ConnectionId(0),
    }
}

fn command(command: pb::item::Command) -> Option<Command> {
    use pb::item::Command as Wire;
    Some(match command {
        Wire::Put(put) => Command::Put {
            tube: name(&put.tube)?,
            priority: Priority(put.priority),
            delay: Seconds(put.delay),
            ttr: Seconds(put.ttr),
            body: put.body,
        },
        Wire::Reserve(reserve) => {
            let tubes: Option<Vec<_>> = reserve.tubes.iter().map(|tube| name(tube)).collect();
            Command::Reserve {
                tubes: tubes.filter(|tubes| !tubes.is_empty())?,
                timeout: reserve.timeout.map(Seconds),
            }
        }
        Wire::ReserveJob(reserve) => Command::ReserveJob {
            job: JobId(reserve.job),
        },
        Wire::Delete(delete) => Command::Delete {
            job: JobId(delete.job),
        },
        Wire::Release(release) => Command::Release {
            job: JobId(release.job),
            priority: Priority(release.priority),
            delay: Seconds(release.delay),
        },
        Wire::Bury(bury) => Command::Bury {
            job: JobId(bury.job),
            priority: Priority(bury.priority),
        },
        Wire::Touch(touch) => Command::Touch {
            job: JobId(touch.job),
        },
        Wire::Kick(kick) => Command::Kick {
            tube: name(&kick.tube)?,
            bound: kick.bound,
        },
        Wire::KickPortion(kick) => Command::KickPortion {
            tube: name(&kick.tube)?,
            bound: kick.bound,
            delayed: kick.delayed,
        },
        Wire::KickJob(kick) => Command::KickJob {
            job: JobId(kick.job),
        },
        Wire::PauseTube(pause) => Command::PauseTube {
            tube: name(&pause.tube)?,
            delay: Seconds(pause.delay),
        },
        Wire::EndWait(_) => Command::EndWait,
        Wire::CloseSession(_) => Command::CloseSession,
        Wire::TubeRef(reference) => Command::TubeRef {
            tube: name(&reference.tube)?,
            set: reference.set,
        },
    })
}

fn name(raw: &[u8]) -> Option<TubeName> {
    TubeName::parse(raw).ok()
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn any_tube() -> impl Strategy<Value = TubeName> {
        "[a-zA-Z0-9+/;.$_()][a-zA-Z0-9+/;.$_()-]{0,199}"
            .prop_map(|text| TubeName::parse(text.as_bytes()).expect("of the alphabet"))
    }

    fn any_command() -> impl Strategy<Value = Command> {
        let job = any::<u64>().prop_map(JobId);
        let priority = any::<u32>().prop_map(Priority);
        let seconds = || any::<u32>().prop_map(Seconds);
        prop_oneof![
            (
                any_tube(),
                priority.clone(),
                seconds(),
                seconds(),
                vec(any::<u8>(), 0..64)
            )
                .prop_map(|(tube, priority, delay, ttr, body)| Command::Put {
                    tube,
                    priority,
                    delay,
                    ttr,
                    body: body.into()
                }),
            (vec(any_tube(), 1..4), proptest::option::of(seconds()))
                .prop_map(|(tubes, timeout)| Command::Reserve { tubes, timeout }),
            job.clone().prop_map(|job| Command::ReserveJob { job }),
            job.clone().prop_map(|job| Command::Delete { job }),
            (job.clone(), priority.clone(), seconds()).prop_map(|(job, priority, delay)| {
                Command::Release {
                    job,
                    priority,
                    delay,
                }
            }),
            (job.clone(), priority).prop_map(|(job, priority)| Command::Bury { job, priority }),
            job.clone().prop_map(|job| Command::Touch { job }),
            (any_tube(), any::<u32>()).prop_map(|(tube, bound)| Command::Kick { tube, bound }),
            (any_tube(), any::<u32>(), any::<bool>()).prop_map(|(tube, bound, delayed)| {
                Command::KickPortion {
                    tube,
                    bound,
                    delayed,
                }
            }),
            job.prop_map(|job| Command::KickJob { job }),
            (any_tube(), seconds()).prop_map(|(tube, delay)| Command::PauseTube { tube, delay }),
            Just(Command::EndWait),
            Just(Command::CloseSession),
            (any_tube(), any::<bool>()).prop_map(|(tube, set)| Command::TubeRef { tube, set }),
            Just(Command::Undecodable),
        ]
    }

    proptest! {
        #[test]
        fn every_item_comes_back_as_it_was(connection: u64, command in any_command()) {
            let item = Item { connection: ConnectionId(connection), command };
            let raw = encode_item(&item);
            prop_assert_eq!(raw.len(), encoded_len(&item));
            prop_assert_eq!(decode(raw), item);
        }

        #[test]
        fn rubbish_is_undecodable_or_a_command_but_never_a_panic(raw in vec(any::<u8>(), 0..200)) {
            decode(raw.into());
        }
    }

    #[test]
    fn a_name_outside_the_alphabet_is_undecodable() {
        let put = pb::Put {
            tube: Bytes::from_static(b"a b"),
            ..Default::default()
        };
        let raw = pb::Item {
            connection: 9,
            command: Some(pb::item::Command::Put(put)),
        };
        let item = decode(raw.encode_to_vec().into());
        assert_eq!(
            item,
            Item {
                connection: ConnectionId(9),
                command: Command::Undecodable
            }
        );
    }

    #[test]
    fn a_reserve_of_nothing_is_undecodable() {
        let reserve = pb::item::Command::Reserve(pb::Reserve::default());
        let raw = pb::Item {
            connection: 9,
            command: Some(reserve),
        };
        assert_eq!(
            decode(raw.encode_to_vec().into()).command,
            Command::Undecodable
        );
    }
}
