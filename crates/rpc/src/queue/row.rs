use bytes::Bytes;
use prost::Message;
use trellis_queue::{JobRow, JobState, MetaRow, OriginRow, Row, TubeId, TubeRow, WaitRow};
use trellis_types::{
    ConnectionId, JobId, NodeId, OriginId, Priority, Run, Seconds, SessionId, Timestamp, TubeName,
};

use crate::pb::{self, job_row::State, row::Row as Wire};

/// Why some bytes are no row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a row: {0}")]
pub struct BadRow(String);

/// The bytes of one row of the machine's image.
pub fn encode_row(row: &Row) -> Vec<u8> {
    wire(row).encode_to_vec()
}

/// Appends the bytes of one row to `text`.
pub fn append_row(row: &Row, text: &mut Vec<u8>) {
    let wire = wire(row);
    text.reserve(wire.encoded_len());
    wire.encode_raw(text);
}

fn wire(row: &Row) -> pb::Row {
    let row = match row {
        Row::Meta(row) => Wire::Meta(meta(row)),
        Row::Tube(row) => Wire::Tube(tube(row)),
        Row::Job(row) => Wire::Job(job(row)),
        Row::Origin(row) => Wire::Origin(pb::OriginRow {
            node: row.node.0,
            highest_run: row.highest_run.0,
            open: row.open,
            last_seq: row.last_seq,
            suspended: row.suspended,
        }),
        Row::Wait(row) => Wire::Wait(pb::WaitRow {
            session: Some(row.session.into()),
            sequence: row.sequence,
            tubes: row.tubes.iter().map(name_bytes).collect(),
            until: row.until.map(|until| until.0),
        }),
    };
    pb::Row { row: Some(row) }
}

/// The row that `raw` is.
///
/// # Errors
///
/// [`BadRow`]; such a state is damaged or of a newer binary.
pub fn decode_row(raw: &[u8]) -> Result<Row, BadRow> {
    let row = pb::Row::decode(raw).map_err(|error| BadRow(error.to_string()))?;
    Ok(match row.row.ok_or_else(|| missing("kind"))? {
        Wire::Meta(row) => Row::Meta(MetaRow {
            now: Timestamp(row.now),
            next_job: row.next_job,
            next_tube: row.next_tube,
            next_sequence: row.next_sequence,
            total_jobs: row.total_jobs,
            job_timeouts: row.job_timeouts,
            puts_refused: row.puts_refused,
            jobs_max: row.jobs_max,
            job_bytes_max: row.job_bytes_max,
            tubes_max: row.tubes_max,
            watch_names_max: row.watch_names_max,
            feature_level: row.feature_level,
            retired: row.retired.into_iter().map(NodeId).collect(),
        }),
        Wire::Tube(row) => Row::Tube(TubeRow {
            id: TubeId(row.id),
            name: name(&row.name)?,
            references: row.references.into_iter().map(OriginId::from).collect(),
            pause: Seconds(row.pause),
            pause_until: Timestamp(row.pause_until),
            total_jobs: row.total_jobs,
            deletes: row.deletes,
            pauses: row.pauses,
        }),
        Wire::Job(row) => Row::Job(decode_job(row)?),
        Wire::Origin(row) => Row::Origin(OriginRow {
            node: NodeId(row.node),
            highest_run: Run(row.highest_run),
            open: row.open,
            last_seq: row.last_seq,
            suspended: row.suspended,
        }),
        Wire::Wait(row) => Row::Wait(WaitRow {
            session: session(row.session)?,
            sequence: row.sequence,
            tubes: row
                .tubes
                .iter()
                .map(|tube| name(tube))
                .collect::<Result<_, _>>()?,
            until: row.until.map(Timestamp),
        }),
    })
}

fn meta(row: &MetaRow) -> pb::MetaRow {
    pb::MetaRow {
        now: row.now.0,
        next_job: row.next_job,
        next_tube: row.next_tube,
        next_sequence: row.next_sequence,
        total_jobs: row.total_jobs,
        job_timeouts: row.job_timeouts,
        puts_refused: row.puts_refused,
        jobs_max: row.jobs_max,
        job_bytes_max: row.job_bytes_max,
        tubes_max: row.tubes_max,
        watch_names_max: row.watch_names_max,
        feature_level: row.feature_level,
        retired: row.retired.iter().map(|node| node.0).collect(),
    }
}

fn tube(row: &TubeRow) -> pb::TubeRow {
    pb::TubeRow {
        id: row.id.0,
        name: name_bytes(&row.name),
        references: row
            .references
            .iter()
            .map(|origin| (*origin).into())
            .collect(),
        pause: row.pause.0,
        pause_until: row.pause_until.0,
        total_jobs: row.total_jobs,
        deletes: row.deletes,
        pauses: row.pauses,
    }
}

fn job(row: &JobRow) -> pb::JobRow {
    let state = match row.state {
        JobState::Ready => State::Ready(pb::job_row::Ready {}),
        JobState::Delayed { until } => State::Delayed(pb::job_row::Delayed { until: until.0 }),
        JobState::Reserved {
            holder,
            deadline,
            sequence,
        } => State::Reserved(pb::job_row::Reserved {
            holder: Some(holder.into()),
            deadline: deadline.0,
            sequence,
        }),
        JobState::Buried { sequence } => State::Buried(pb::job_row::Buried { sequence }),
    };
    pb::JobRow {
        id: row.id.0,
        order: row.order,
        tube: row.tube.0,
        priority: row.priority.0,
        delay: row.delay.0,
        ttr: row.ttr.0,
        created: row.created.0,
        state: Some(state),
        reserves: row.reserves,
        timeouts: row.timeouts,
        releases: row.releases,
        buries: row.buries,
        kicks: row.kicks,
        body_bytes: row.body_bytes,
        body_crc: row.body_crc,
    }
}

fn decode_job(row: pb::JobRow) -> Result<JobRow, BadRow> {
    let state = match row.state.ok_or_else(|| missing("state of a job"))? {
        State::Ready(_) => JobState::Ready,
        State::Delayed(delayed) => JobState::Delayed {
            until: Timestamp(delayed.until),
        },
        State::Reserved(reserved) => JobState::Reserved {
            holder: session(reserved.holder)?,
            deadline: Timestamp(reserved.deadline),
            sequence: reserved.sequence,
        },
        State::Buried(buried) => JobState::Buried {
            sequence: buried.sequence,
        },
    };
    Ok(JobRow {
        id: JobId(row.id),
        order: row.order,
        tube: TubeId(row.tube),
        priority: Priority(row.priority),
        delay: Seconds(row.delay),
        ttr: Seconds(row.ttr),
        created: Timestamp(row.created),
        state,
        reserves: row.reserves,
        timeouts: row.timeouts,
        releases: row.releases,
        buries: row.buries,
        kicks: row.kicks,
        body_bytes: row.body_bytes,
        body_crc: row.body_crc,
    })
}

fn name_bytes(name: &TubeName) -> Bytes {
    Bytes::copy_from_slice(name.as_str().as_bytes())
}

fn name(raw: &[u8]) -> Result<TubeName, BadRow> {
    TubeName::parse(raw).map_err(|error| BadRow(error.to_string()))
}

fn missing(what: &str) -> BadRow {
    BadRow(format!("without {what}"))
}

fn session(session: Option<pb::Session>) -> Result<SessionId, BadRow> {
    let session = session.ok_or_else(|| missing("session"))?;
    let origin = session
        .origin
        .ok_or_else(|| missing("origin of a session"))?;
    Ok(SessionId {
        origin: origin.into(),
        connection: ConnectionId(session.connection),
    })
}

impl From<SessionId> for pb::Session {
    fn from(session: SessionId) -> Self {
        Self {
            origin: Some(session.origin.into()),
            connection: session.connection.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_session() -> SessionId {
        SessionId {
            origin: OriginId {
                node: NodeId(1 << 63),
                run: Run(2),
            },
            connection: ConnectionId(3),
        }
    }

    fn a_job(state: JobState) -> Row {
        Row::Job(JobRow {
            id: JobId(1),
            order: 2,
            tube: TubeId(3),
            priority: Priority(4),
            delay: Seconds(5),
            ttr: Seconds(6),
            created: Timestamp(7),
            state,
            reserves: 8,
            timeouts: 9,
            releases: 10,
            buries: 11,
            kicks: 12,
            body_bytes: 13,
            body_crc: 14,
        })
    }

    #[test]
    fn every_row_comes_back_as_it_was() {
        let default = TubeName::default_tube();
        for row in [
            Row::Meta(MetaRow::default()),
            Row::Meta(MetaRow {
                now: Timestamp(1),
                next_job: 2,
                next_tube: 3,
                next_sequence: 4,
                total_jobs: 5,
                job_timeouts: 6,
                puts_refused: true,
                jobs_max: 7,
                job_bytes_max: 8,
                tubes_max: 9,
                watch_names_max: 10,
                feature_level: 11,
                retired: vec![NodeId(12), NodeId(u64::MAX)],
            }),
            Row::Tube(TubeRow {
                id: TubeId(1),
                name: default.clone(),
                references: vec![a_session().origin],
                pause: Seconds(2),
                pause_until: Timestamp(3),
                total_jobs: 4,
                deletes: 5,
                pauses: 6,
            }),
            a_job(JobState::Ready),
            a_job(JobState::Delayed {
                until: Timestamp(0),
            }),
            a_job(JobState::Reserved {
                holder: a_session(),
                deadline: Timestamp(1),
                sequence: 2,
            }),
            a_job(JobState::Buried { sequence: 0 }),
            Row::Origin(OriginRow {
                node: NodeId(1),
                highest_run: Run(2),
                open: true,
                last_seq: 3,
                suspended: true,
            }),
            Row::Wait(WaitRow {
                session: a_session(),
                sequence: 1,
                tubes: vec![default.clone()],
                until: None,
            }),
            Row::Wait(WaitRow {
                session: a_session(),
                sequence: 1,
                tubes: vec![default.clone(), default],
                until: Some(Timestamp(0)),
            }),
        ] {
            assert_eq!(decode_row(&encode_row(&row)), Ok(row));
        }
    }

    #[test]
    fn what_is_no_row_is_refused() {
        for raw in [&b""[..], b"\xff\xff", b"\x1a\x00"] {
            assert!(decode_row(raw).is_err(), "{raw:?} passed for a row");
        }
    }
}
