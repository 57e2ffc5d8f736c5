use std::io;

use super::Network;

/// Where in a place's network packets are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Those that arrive.
    Input,
    /// Those that leave.
    Output,
}

impl Hook {
    fn name(self) -> &'static str {
        match self {
            Self::Input => "INPUT",
            Self::Output => "OUTPUT",
        }
    }
}

/// Rules for packets in one place, and how many packets they met. They hold until
/// [`Filter::lift`], or the end of the place.
#[derive(Debug)]
pub struct Filter {
    host: u8,
    hook: Hook,
    chain: String,
}

impl Filter {
    /// Lets each of `rules` (words of iptables: what to match and what to do) decide about packets
    /// of the place `host`. `name` tells filters of one place apart.
    ///
    /// # Errors
    ///
    /// iptables can't do it.
    pub fn lay(
        network: &Network,
        host: u8,
        hook: Hook,
        name: &str,
        rules: &[Vec<String>],
    ) -> io::Result<Self> {
        let chain = format!("{name}-{}", hook.name());
        let iptables = |words: &[&str]| {
            let mut all = vec!["iptables", "-w", "5"];
            all.extend(words);
            network.run(host, &all)
        };
        iptables(&["-N", &chain])?;
        for rule in rules {
            let mut words = vec!["-A", chain.as_str()];
            words.extend(rule.iter().map(String::as_str));
            iptables(&words)?;
        }
        iptables(&["-I", hook.name(), "-j", &chain])?;
        Ok(Self { host, hook, chain })
    }

    /// Packets that its rules have met so far.
    ///
    /// # Errors
    ///
    /// iptables can't tell.
    pub fn met(&self, network: &Network) -> io::Result<u64> {
        let words = ["iptables", "-w", "5", "-vnxL", &self.chain];
        let told = network.run(self.host, &words)?;
        // Two lines of headings, then: packets, bytes, target, …
        let counts = told
            .lines()
            .skip(2)
            .filter_map(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        Ok(counts.sum())
    }

    /// Takes the rules away.
    ///
    /// # Errors
    ///
    /// iptables can't do it.
    pub fn lift(self, network: &Network) -> io::Result<()> {
        let chain = self.chain.as_str();
        for words in [
            &["-D", self.hook.name(), "-j", chain][..],
            &["-F", chain],
            &["-X", chain],
        ] {
            let mut all = vec!["iptables", "-w", "5"];
            all.extend(words);
            network.run(self.host, &all)?;
        }
        Ok(())
    }
}
