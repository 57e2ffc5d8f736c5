use std::{collections::BTreeSet, sync::Arc};

use trellis_node::model::ModelMerger;
use trellis_queue::{Content, Entry, LeaderCommand};
use trellis_rpc::queue::decode_batch;
use trellis_types::{OriginId, Timestamp};

use super::{
    Rule, law,
    setup::{LEAP_MS, NODES, Setup},
    world::{Appended, Committed, Lead, World, mark_of, node_id},
};

/// What leaders do, and what becomes of their log.
impl World {
    /// Cluster time as a leader stamps it.
    pub(crate) fn clock(&self) -> Timestamp {
        Timestamp(self.leaps * LEAP_MS)
    }

    pub(super) fn append(&mut self, leader: usize, content: Content) {
        let entry = Entry {
            at: self.clock(),
            content,
        };
        let this = &mut self.nodes[leader];
        // A log that contradicts what is committed goes nowhere.
        if let Some(lead) = &this.leads
            && !this.lost
        {
            this.suffix.push_back(Appended {
                term: lead.term,
                mark: mark_of(&entry),
                entry: Arc::new(entry),
            });
        }
    }

    pub(super) fn lead(&mut self, leader: usize, command: LeaderCommand) {
        self.append(leader, Content::Leader(vec![command]));
    }

    pub(super) fn lead_open(
        &mut self,
        leader: usize,
        node: usize,
        of: fn(OriginId) -> LeaderCommand,
    ) {
        let view = self.nodes[leader].machine.origin(node_id(node));
        if let Some(origin) = view.and_then(|view| view.open) {
            self.lead(leader, of(origin));
        }
    }

    pub(super) fn propose(&mut self, leader: usize) -> Vec<OriginId> {
        let merged = match &mut self.nodes[leader].leads {
            Some(lead) => lead.merger.merge(),
            None => None,
        };
        let Some((batches, origins)) = merged else {
            return Vec::new();
        };
        let batches = batches
            .into_iter()
            .filter_map(|bytes| decode_batch(bytes).ok())
            .collect();
        self.append(leader, Content::Batches(batches));
        origins
    }

    pub(super) fn refuse(&mut self, leader: usize, kept: bool, setup: &Setup) {
        self.left.refusals -= 1;
        let before = self.nodes[leader].suffix.len();
        let mut origins = self.propose(leader);
        let this = &mut self.nodes[leader];
        if !kept {
            this.suffix.truncate(before);
        }
        if setup.drops(Rule::Doubt) {
            origins.clear();
        }
        if setup.drops(Rule::DoubtEvery) {
            origins.truncate(1);
        }
        if let Some(lead) = &mut this.leads {
            lead.doubt.extend(origins);
        }
    }

    pub(super) fn end_doubtful(&mut self, leader: usize) {
        let Some(lead) = &mut self.nodes[leader].leads else {
            return;
        };
        let term = lead.term;
        let doubtful = std::mem::take(&mut lead.doubt);
        for origin in &doubtful {
            lead.merger.close(*origin);
        }
        for node in &mut self.nodes {
            for stream in &mut node.streams {
                if (stream.leader, stream.term) == (leader, term)
                    && doubtful.contains(&stream.origin)
                {
                    stream.read = false;
                }
            }
        }
        for node in 0..NODES {
            if doubtful.iter().any(|origin| origin.node == node_id(node)) {
                self.set_present(leader, node, false);
            }
        }
    }

    pub(super) fn commit(&mut self, leader: usize, setup: &Setup) -> Result<(), String> {
        let Some(Appended { term, entry, mark }) = self.nodes[leader].suffix.pop_front() else {
            return Ok(());
        };
        for (other, node) in self.nodes.iter_mut().enumerate() {
            if other == leader || node.lost {
                continue;
            }
            match node.suffix.front() {
                Some(front) if front.term == term => {
                    node.suffix.pop_front();
                }
                _ => {
                    // Overwritten, or not there yet.
                    node.suffix.clear();
                    node.lost = node.leads.is_some();
                }
            }
        }
        let (machine, outcome) = law::apply(&self.tip, &entry, setup.dropped)?;
        Arc::make_mut(&mut self.promises).committed(setup, &entry, &outcome, &machine)?;
        self.tip = Arc::new(machine);
        self.log.push_back(Arc::new(Committed {
            mark,
            entry,
            events: outcome.events,
            machine: self.tip.clone(),
        }));
        // Where nobody is served it makes no difference when a node applies.
        for node in 0..NODES {
            while self.nodes[node].applied < self.length()
                && (setup.is_idle(node)
                    || self.nodes[node]
                        .origin
                        .as_ref()
                        .is_none_or(|origin| origin.open().is_none()))
            {
                self.apply(node, setup)?;
            }
        }
        Ok(())
    }

    pub(super) fn elect(&mut self, node: usize, source: usize, kept: usize) {
        if self.leader().is_some() {
            self.left.elections -= 1;
        }
        self.term += 1;
        let mut suffix = match self.nodes[source].lost {
            true => Default::default(),
            false => self.nodes[source].suffix.clone(),
        };
        suffix.truncate(kept);
        self.step_down(node);
        let this = &mut self.nodes[node];
        this.suffix = suffix;
        this.lost = false;
        this.leads = Some(Lead {
            term: self.term,
            office: false,
            merger: ModelMerger::default(),
            present: [false; NODES],
            doubt: BTreeSet::new(),
        });
    }

    /// Leads no more.
    pub(super) fn step_down(&mut self, node: usize) {
        let this = &mut self.nodes[node];
        this.leads = None;
        if std::mem::take(&mut this.lost) {
            this.suffix.clear();
        }
    }

    pub(super) fn set_present(&mut self, leader: usize, node: usize, present: bool) {
        if let Some(lead) = &mut self.nodes[leader].leads {
            lead.present[node] = present;
        }
    }
}
