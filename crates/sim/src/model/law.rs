//! What an entry does to the machine: the real one, or the real one made to forget a rule.

use std::collections::BTreeSet;

use trellis_queue::{
    Batch, Command, Content, Entry, Event, Fate, JobState, LeaderCommand, Machine, OriginRow,
    Outcome, Row, Verdict,
};
use trellis_types::{OriginId, Run, SessionId, Timestamp};

use super::Rule;

/// Applies an entry to a copy of the machine.
///
/// # Errors
///
/// A rule was dropped and what came of it is no state that a machine can be in.
pub(crate) fn apply(
    machine: &Machine,
    entry: &Entry,
    dropped: Option<Rule>,
) -> Result<(Machine, Outcome), String> {
    let mut court = Court {
        machine: machine.clone(),
        at: entry.at,
        out: Outcome::default(),
    };
    match (&entry.content, dropped) {
        (Content::Batches(batches), Some(rule)) if is_of_batches(rule) => {
            for batch in batches {
                court.batch(batch, rule)?;
            }
        }
        (Content::Leader(commands), Some(rule)) if is_of_leaders(rule) => {
            for command in commands {
                court.lead(command, rule)?;
            }
        }
        (content, _) => court.apply(content.clone()),
    }
    Ok((court.machine, court.out))
}

fn is_of_batches(rule: Rule) -> bool {
    use Rule::*;
    matches!(
        rule,
        Holes
            | Dedupe
            | Unopened
            | ExemptClose
            | ExemptEndWait
            | ExemptTubeRef
            | AllLater
            | CloseWaitFirst
    )
}

fn is_of_leaders(rule: Rule) -> bool {
    use Rule::*;
    matches!(
        rule,
        HigherRun | HighestRemembered | RepeatedOpen | ResumeOffers | PassedOver | EndWaitsFirst
    )
}

struct Court {
    machine: Machine,
    at: Timestamp,
    out: Outcome,
}

impl Court {
    fn apply(&mut self, content: Content) {
        let outcome = self.machine.apply(&Entry {
            at: self.at,
            content,
        });
        self.out.events.extend(outcome.events);
        self.out.changes.extend(outcome.changes);
    }

    /// Changes the machine's image behind its back.
    fn rewrite(&mut self, rewrite: impl FnOnce(&mut Vec<Row>)) -> Result<(), String> {
        let mut rows: Vec<Row> = self.machine.rows().collect();
        rewrite(&mut rows);
        self.machine = Machine::load(rows).map_err(|bad| format!("MACHINE: {}", bad.0))?;
        Ok(())
    }

    fn rewrite_origin(&mut self, new: OriginRow) -> Result<(), String> {
        self.rewrite(|rows| {
            rows.retain(|row| !matches!(row, Row::Origin(row) if row.node == new.node));
            rows.push(Row::Origin(new));
        })
    }

    fn set_last(&mut self, origin: OriginId, last_seq: u64) -> Result<(), String> {
        let suspended = self
            .machine
            .origin(origin.node)
            .is_some_and(|view| view.suspended);
        self.rewrite_origin(OriginRow {
            node: origin.node,
            highest_run: origin.run,
            open: true,
            last_seq,
            suspended,
        })
    }

    fn batch(&mut self, batch: &Batch, rule: Rule) -> Result<(), String> {
        let (origin, seq) = (batch.origin, batch.seq);
        let view = self.machine.origin(origin.node);
        let open = view.and_then(|view| view.open);
        let last = view.map_or(0, |view| view.last_seq);
        let before = seq.saturating_sub(1);
        match rule {
            Rule::Holes if open == Some(origin) && seq > last + 1 => {
                self.set_last(origin, before)?;
            }
            Rule::Dedupe if open == Some(origin) && seq <= last => {
                self.set_last(origin, before)?;
                self.apply(Content::Batches(vec![batch.clone()]));
                return self.set_last(origin, last);
            }
            Rule::Unopened if open.is_none() => self.set_last(origin, before)?,
            Rule::ExemptClose
            | Rule::ExemptEndWait
            | Rule::ExemptTubeRef
            | Rule::AllLater
            | Rule::CloseWaitFirst
                if open == Some(origin) && seq == last + 1 =>
            {
                return self.item_by_item(batch, rule);
            }
            _ => {}
        }
        self.apply(Content::Batches(vec![batch.clone()]));
        Ok(())
    }

    /// The machine's own walk over the items of a batch, less one rule.
    fn item_by_item(&mut self, batch: &Batch, rule: Rule) -> Result<(), String> {
        let Batch { origin, seq, .. } = *batch;
        let at = self.out.events.len();
        let mut verdicts = Vec::new();
        let mut skipping = BTreeSet::new();
        for item in &batch.items {
            let session = SessionId {
                origin,
                connection: item.connection,
            };
            let exempt = match item.command {
                Command::CloseSession => rule != Rule::ExemptClose,
                Command::EndWait => rule != Rule::ExemptEndWait,
                // In a world without this rule it is a command of whichever session waits.
                Command::TubeRef { .. } => {
                    rule != Rule::ExemptTubeRef
                        || !self.machine.rows().any(
                            |row| matches!(row, Row::Wait(row) if row.session.origin == origin),
                        )
                }
                _ => false,
            };
            let skips = rule != Rule::AllLater && skipping.contains(&item.connection);
            if !exempt
                && (skips
                    || self.machine.is_waiting(session)
                    || matches!(item.command, Command::TubeRef { .. }))
            {
                skipping.insert(item.connection);
                verdicts.push(Verdict::Skipped);
                continue;
            }
            if item.command == Command::CloseSession {
                skipping.insert(item.connection);
                if rule == Rule::CloseWaitFirst {
                    self.return_holds(|holder| holder == session)?;
                    // Only the wait goes now; what the session has got meanwhile it keeps.
                    self.set_last(origin, seq - 1)?;
                    self.one(batch, item.connection, Command::EndWait);
                    verdicts.push(Verdict::Silent);
                    continue;
                }
            }
            self.set_last(origin, seq - 1)?;
            verdicts.extend(self.one(batch, item.connection, item.command.clone()));
        }
        self.set_last(origin, seq)?;
        self.out.events.insert(
            at,
            Event::Batch {
                origin,
                seq,
                fate: Fate::Applied(verdicts),
            },
        );
        Ok(())
    }

    /// Carries out one item as if it were the whole batch; its verdict.
    fn one(
        &mut self,
        batch: &Batch,
        connection: trellis_types::ConnectionId,
        command: Command,
    ) -> Option<Verdict> {
        let at = self.out.events.len();
        let item = trellis_queue::Item {
            connection,
            command,
        };
        self.apply(Content::Batches(vec![Batch {
            items: vec![item],
            ..batch.clone()
        }]));
        let place = self.out.events[at..].iter().position(
            |event| matches!(event, Event::Batch { origin, .. } if *origin == batch.origin),
        )?;
        match self.out.events.remove(at + place) {
            Event::Batch {
                fate: Fate::Applied(verdicts),
                ..
            } => verdicts.into_iter().next(),
            _ => None,
        }
    }

    /// Lets holds return in order of reservation while nothing else has happened yet.
    fn return_holds(&mut self, of: impl Fn(SessionId) -> bool) -> Result<(), String> {
        let now = self.machine.now();
        let mut holds: Vec<_> = self
            .machine
            .rows()
            .filter_map(|row| match row {
                Row::Job(row) => match row.state {
                    JobState::Reserved {
                        holder, sequence, ..
                    } if of(holder) => Some((sequence, row.id)),
                    _ => None,
                },
                _ => None,
            })
            .collect();
        holds.sort_unstable();
        for (_, job) in holds {
            self.rewrite(|rows| {
                for row in rows {
                    if let Row::Job(row) = row
                        && row.id == job
                    {
                        row.state = JobState::Delayed { until: now };
                    }
                }
            })?;
            self.apply(Content::Leader(vec![LeaderCommand::Tick]));
        }
        Ok(())
    }

    fn lead(&mut self, command: &LeaderCommand, rule: Rule) -> Result<(), String> {
        match (command, rule) {
            (LeaderCommand::OpenOrigin(origin), _) => return self.open(*origin, rule),
            (LeaderCommand::SuspendOrigin(_), Rule::PassedOver) => return Ok(()),
            (LeaderCommand::ResumeOrigin(origin), Rule::ResumeOffers) => {
                if let Some(view) = self.machine.origin(origin.node)
                    && view.open == Some(*origin)
                {
                    self.rewrite_origin(OriginRow {
                        node: view.node,
                        highest_run: view.highest_run,
                        open: true,
                        last_seq: view.last_seq,
                        suspended: false,
                    })?;
                }
                return Ok(());
            }
            (LeaderCommand::ExpireOrigin(origin), Rule::EndWaitsFirst) => {
                self.end_with_holds_first(*origin)?;
            }
            _ => {}
        }
        self.apply(Content::Leader(vec![command.clone()]));
        Ok(())
    }

    fn open(&mut self, origin: OriginId, rule: Rule) -> Result<(), String> {
        if let Some(view) = self.machine.origin(origin.node) {
            let forgets = match rule {
                Rule::HigherRun => view.open != Some(origin),
                Rule::HighestRemembered => view.open.is_none(),
                Rule::RepeatedOpen if view.open == Some(origin) => {
                    return self.set_last(origin, 0);
                }
                Rule::EndWaitsFirst => {
                    if let Some(open) = view.open
                        && view.highest_run < origin.run
                    {
                        self.end_with_holds_first(open)?;
                    }
                    false
                }
                _ => false,
            };
            if forgets {
                if let Some(open) = view.open {
                    self.apply(Content::Leader(vec![LeaderCommand::ExpireOrigin(open)]));
                }
                self.rewrite_origin(OriginRow {
                    node: origin.node,
                    highest_run: Run(origin.run.0.saturating_sub(1)),
                    open: false,
                    last_seq: 0,
                    suspended: false,
                })?;
            }
        }
        self.apply(Content::Leader(vec![LeaderCommand::OpenOrigin(origin)]));
        Ok(())
    }

    fn end_with_holds_first(&mut self, origin: OriginId) -> Result<(), String> {
        let at = self.out.events.len();
        self.return_holds(|holder| holder.origin == origin)?;
        let given = self.out.events[at..].iter().any(
            |event| matches!(event, Event::Deferred { session, .. } if session.origin == origin),
        );
        match given {
            true => Err(format!(
                "GONE: a job is held by a session of {origin}, which ends"
            )),
            false => Ok(()),
        }
    }
}
