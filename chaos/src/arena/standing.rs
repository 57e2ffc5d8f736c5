use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rand::{Rng, rngs::StdRng};
use serde_json::Value;
use trellis_checker::history::NodeEvent;
use trellis_testkit::admin::{Answer, ask};

use super::{Arena, name, wait};

/// How long a node may take to tell where it stands. A busy machine is slow, a dead node refuses.
const STATUS_MAX: Duration = Duration::from_secs(2);

/// How long there may be no leader while a majority lives and hears each other.
const LEADER_MAX: Duration = Duration::from_secs(30);

/// Where nodes stand, asked of themselves.
impl Arena {
    /// What a node says of itself.
    ///
    /// # Errors
    ///
    /// It does not answer.
    pub fn status(&self, node: usize) -> Result<Value> {
        let answer = ask(
            self.nodes[node].admin(),
            "GET",
            "/v1/status",
            "",
            STATUS_MAX,
        )?;
        Ok(serde_json::from_str(&answer.body)?)
    }

    /// Asks the admin port of a node for a change, as the command line does.
    ///
    /// # Errors
    ///
    /// It does not answer within `patience`.
    pub fn order(
        &self,
        node: usize,
        method: &str,
        path: &str,
        body: &str,
        patience: Duration,
    ) -> Result<Answer> {
        let admin = self.nodes[node].admin();
        Ok(ask(admin, method, path, body, patience)?)
    }

    /// Whether a node says that it is ready.
    pub fn is_ready(&self, node: usize) -> bool {
        let answer = ask(self.nodes[node].admin(), "GET", "/readyz", "", STATUS_MAX);
        answer.is_ok_and(|answer| answer.status == 200)
    }

    /// Members whose processes live and are not frozen.
    pub fn living(&mut self) -> Vec<usize> {
        let members = self.members.clone();
        let awake = |node: &usize| !self.frozen.contains(node) && self.nodes[*node].is_alive();
        members.into_iter().filter(awake).collect()
    }

    /// Who leads, as that node itself says, and the term.
    pub fn leading(&mut self) -> Option<(usize, u64)> {
        let living = self.living();
        let claims = living.into_iter().filter_map(|node| {
            let status = self.status(node).ok()?;
            let leads = status["role"] == "leader";
            leads.then(|| (node, status["term"].as_u64().unwrap_or_default()))
        });
        claims.max_by_key(|claim| claim.1)
    }

    /// Waits for a leader.
    ///
    /// # Errors
    ///
    /// There is none within half a minute.
    pub fn leader(&mut self) -> Result<usize> {
        wait(LEADER_MAX, "somebody leads", || {
            Ok(self.leading().context("nobody does")?.0)
        })
    }

    /// The leader, or if there is none just now any node that lives.
    ///
    /// # Errors
    ///
    /// None lives.
    pub fn leader_or_any(&mut self, random: &mut StdRng) -> Result<usize> {
        if let Some((leader, _)) = self.leading() {
            return Ok(leader);
        }
        let living = self.living();
        if living.is_empty() {
            bail!("no node lives");
        }
        Ok(living[random.random_range(0..living.len())])
    }

    /// A member that lives and does not lead.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn follower(&mut self, random: &mut StdRng) -> Result<usize> {
        let leader = self.leading().map(|claim| claim.0);
        let mut others = self.living();
        others.retain(|node| Some(*node) != leader);
        if others.is_empty() {
            bail!("no follower lives");
        }
        Ok(others[random.random_range(0..others.len())])
    }

    /// Waits until another than `before` leads.
    ///
    /// # Errors
    ///
    /// Nobody else does within half a minute.
    pub fn another_leads(&mut self, before: usize) -> Result<usize> {
        wait(LEADER_MAX, "another one leads", || match self.leading() {
            Some((leader, _)) if leader != before => Ok(leader),
            other => bail!("{} led before; now: {other:?}", name(before)),
        })
    }

    /// Waits until all members are ready, and the leader sees each of them present and voting.
    ///
    /// # Errors
    ///
    /// It is not so within `bound`: who is not, and the end of its log.
    pub fn settle(&mut self, bound: Duration) -> Result<Duration> {
        let begin = Instant::now();
        let members = self.members.clone();
        let settled = wait(bound, "all members are ready", || {
            for node in &members {
                if self.suspects.contains(node) {
                    self.look_after(*node)?;
                }
                if !self.nodes[*node].is_alive() {
                    let code = self.nodes[*node].exit_code();
                    bail!("{} has no process (exit code {code:?})", name(*node));
                }
                if !self.is_ready(*node) {
                    let status = self.status(*node).map(|it| it.to_string());
                    bail!("{} is not ready: {status:?}", name(*node));
                }
            }
            let (leader, _) = self.leading().context("nobody leads")?;
            let status = self.status(leader)?;
            let told = status["members"].as_array().cloned().unwrap_or_default();
            let voting = told
                .iter()
                .filter(|member| member["voter"] == true && member["present"] == true)
                .count();
            if voting != members.len() || told.len() != members.len() {
                let words = Value::Array(told);
                bail!(
                    "{voting} of {} vote and are present: {words}",
                    members.len()
                );
            }
            Ok(())
        });
        match settled {
            Ok(()) => Ok(begin.elapsed()),
            Err(error) => {
                let mut words = String::new();
                for node in members {
                    if !self.is_ready(node) {
                        let last = self.nodes[node].last_words(15);
                        words.push_str(&format!("\n--- {}\n{last}", name(node)));
                    }
                }
                Err(error.context(format!("the last words of who is not ready:{words}")))
            }
        }
    }

    /// What a supervisor and an operator do for a node whose folder may be damaged.
    fn look_after(&mut self, node: usize) -> Result<()> {
        if !self.nodes[node].is_alive() {
            let code = self.nodes[node].exit_code();
            println!("    {} ended with {code:?}; started again", name(node));
            self.note(node, NodeEvent::Killed);
            self.start(node)?;
        }
        let status = self.status(node)?;
        if let Some(why) = status["quarantined"].as_str() {
            let answer = self.order(node, "POST", "/v1/rebuild", "{}", STATUS_MAX)?;
            // Asked a second time it has nothing left to move aside.
            if answer.status == 200 {
                println!("    {} is quarantined: {why}; rebuilt", name(node));
            }
        }
        Ok(())
    }

    /// Waits until all members have the same digest at the same applied index.
    ///
    /// # Errors
    ///
    /// They have not within `bound`.
    pub fn digests_agree(&self, bound: Duration) -> Result<String> {
        wait(bound, "all members have one digest", || {
            let mut digests = Vec::new();
            for node in &self.members {
                let status = self.status(*node)?;
                let digest = &status["digest"];
                digests.push((digest["index"].clone(), digest["value"].clone()));
            }
            let Some(first) = digests.first() else {
                bail!("there are no members");
            };
            if first.1.is_null() || digests.iter().any(|digest| digest != first) {
                bail!("they are {digests:?}");
            }
            Ok(format!("{} at {}", first.1, first.0))
        })
    }
}
