use bytes::Bytes;
use prost::Message;
use trellis_queue::{LeaderCommand, Setting};
use trellis_types::{NodeId, OriginId, Run};

use super::BadFrame;
use crate::pb::{self, leader_command::Command, setting::Value};

/// The bytes of one command of the leader.
pub fn encode_leader(command: &LeaderCommand) -> Bytes {
    let command = match command {
        LeaderCommand::OpenOrigin(origin) => Command::OpenOrigin((*origin).into()),
        LeaderCommand::SuspendOrigin(origin) => Command::SuspendOrigin((*origin).into()),
        LeaderCommand::ResumeOrigin(origin) => Command::ResumeOrigin((*origin).into()),
        LeaderCommand::ExpireOrigin(origin) => Command::ExpireOrigin((*origin).into()),
        LeaderCommand::Tick => Command::Tick(pb::Tick {}),
        LeaderCommand::Set(setting) => {
            let value = match *setting {
                Setting::PutsRefused(refused) => Value::PutsRefused(refused),
                Setting::JobsMax(max) => Value::JobsMax(max),
                Setting::JobBytesMax(max) => Value::JobBytesMax(max),
                Setting::TubesMax(max) => Value::TubesMax(max),
                Setting::WatchNamesMax(max) => Value::WatchNamesMax(max),
                Setting::FeatureLevel(level) => Value::FeatureLevel(level),
            };
            Command::Set(pb::Setting { value: Some(value) })
        }
        LeaderCommand::RetireNode(node) => Command::RetireNode(node.0),
    };
    pb::LeaderCommand {
        command: Some(command),
    }
    .encode_to_vec()
    .into()
}

/// The command of the leader that `raw` is.
///
/// # Errors
///
/// [`BadFrame::Undecodable`] if it is none that this binary knows.
pub fn decode_leader(raw: &Bytes) -> Result<LeaderCommand, BadFrame> {
    let unknown = || BadFrame::Undecodable("an unknown command of the leader".into());
    let decoded = pb::LeaderCommand::decode(raw.clone())
        .map_err(|error| BadFrame::Undecodable(error.to_string()))?;
    Ok(match decoded.command.ok_or_else(unknown)? {
        Command::OpenOrigin(origin) => LeaderCommand::OpenOrigin(origin.into()),
        Command::SuspendOrigin(origin) => LeaderCommand::SuspendOrigin(origin.into()),
        Command::ResumeOrigin(origin) => LeaderCommand::ResumeOrigin(origin.into()),
        Command::ExpireOrigin(origin) => LeaderCommand::ExpireOrigin(origin.into()),
        Command::Tick(_) => LeaderCommand::Tick,
        Command::Set(setting) => LeaderCommand::Set(match setting.value.ok_or_else(unknown)? {
            Value::PutsRefused(refused) => Setting::PutsRefused(refused),
            Value::JobsMax(max) => Setting::JobsMax(max),
            Value::JobBytesMax(max) => Setting::JobBytesMax(max),
            Value::TubesMax(max) => Setting::TubesMax(max),
            Value::WatchNamesMax(max) => Setting::WatchNamesMax(max),
            Value::FeatureLevel(level) => Setting::FeatureLevel(level),
        }),
        Command::RetireNode(node) => LeaderCommand::RetireNode(NodeId(node)),
    })
}

impl From<OriginId> for pb::Origin {
    fn from(origin: OriginId) -> Self {
        Self {
            node: origin.node.0,
            run: origin.run.0,
        }
    }
}

impl From<pb::Origin> for OriginId {
    fn from(origin: pb::Origin) -> Self {
        Self {
            node: NodeId(origin.node),
            run: Run(origin.run),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_the_leader_comes_back_as_it_was() {
        let origin = OriginId {
            node: NodeId(u64::MAX),
            run: Run(4),
        };
        for command in [
            LeaderCommand::OpenOrigin(origin),
            LeaderCommand::SuspendOrigin(origin),
            LeaderCommand::ResumeOrigin(origin),
            LeaderCommand::ExpireOrigin(origin),
            LeaderCommand::Tick,
            LeaderCommand::Set(Setting::PutsRefused(false)),
            LeaderCommand::Set(Setting::PutsRefused(true)),
            LeaderCommand::Set(Setting::JobsMax(0)),
            LeaderCommand::Set(Setting::JobBytesMax(u64::MAX)),
            LeaderCommand::Set(Setting::TubesMax(3)),
            LeaderCommand::Set(Setting::WatchNamesMax(5)),
            LeaderCommand::Set(Setting::FeatureLevel(1)),
            LeaderCommand::RetireNode(NodeId(0)),
        ] {
            assert_eq!(decode_leader(&encode_leader(&command)), Ok(command));
        }
    }

    #[test]
    fn an_unknown_command_of_the_leader_is_refused() {
        assert!(decode_leader(&Bytes::new()).is_err());
        assert!(decode_leader(&Bytes::from_static(&[0xff, 0xff])).is_err());
    }
}
