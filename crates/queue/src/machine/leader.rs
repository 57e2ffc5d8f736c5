use super::Machine;
use crate::{LeaderCommand, Outcome, Setting};

impl Machine {
    /// Carries out a word of the leader.
    pub(super) fn lead(&mut self, command: &LeaderCommand, out: &mut Outcome) {
        match command {
            LeaderCommand::OpenOrigin(origin) => self.open_origin(*origin, out),
            LeaderCommand::SuspendOrigin(origin) => self.suspend_origin(*origin),
            LeaderCommand::ResumeOrigin(origin) => self.resume_origin(*origin, out),
            LeaderCommand::ExpireOrigin(origin) => self.end_origin(*origin, out),
            LeaderCommand::RetireNode(node) => self.retire_node(*node, out),
            LeaderCommand::Set(setting) => self.set(*setting),
            // Time has moved before any command runs.
            LeaderCommand::Tick => {}
        }
    }

    /// Changes a setting. What exists already beyond a lowered bound stays.
    fn set(&mut self, setting: Setting) {
        match setting {
            Setting::PutsRefused(refused) => self.meta.puts_refused = refused,
            Setting::JobsMax(max) => self.meta.jobs_max = max,
            Setting::JobBytesMax(max) => self.meta.job_bytes_max = max,
            Setting::TubesMax(max) => self.meta.tubes_max = max,
            Setting::WatchNamesMax(max) => self.meta.watch_names_max = max,
            // A level that was in force has entries in the log that need it.
            Setting::FeatureLevel(level) => {
                self.meta.feature_level = self.meta.feature_level.max(level);
            }
        }
    }
}
