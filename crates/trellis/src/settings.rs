mod checks;

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration};

use trellis_types::limits;

use crate::config::{Config, Mistake, Said};
use checks::{
    address, check_filter, check_name, check_user, differ, host_name, host_port, parse_listen,
    quoted, reachable, seconds, within,
};

/// What the configuration means: checked once at start-up. Holding one is the proof.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// This node's name.
    pub name: String,
    /// The data folder.
    pub data_dir: PathBuf,
    /// Where clients connect; at least one.
    pub listen: Vec<Listen>,
    /// Where peers connect.
    pub peer_listen: SocketAddr,
    /// The peer address as others reach it.
    pub peer_address: String,
    /// Where the admin port is.
    pub admin_listen: SocketAddr,
    /// Name → peer address of every node of the first boot; this node among them, unless it joins.
    pub initial_members: BTreeMap<String, String>,
    /// Peer addresses of a cluster to join.
    pub join: Vec<String>,
    /// Longest job body in bytes.
    pub body_bytes_max: u32,
    /// Client connections of this node.
    pub connections_max: usize,
    /// Whether reads are answered without asking the leader.
    pub reads_local: bool,
    /// How long a silent node keeps its sessions.
    pub node_lease: Duration,
    /// How long a command waits for a majority.
    pub commit_timeout: Duration,
    /// Interval of heartbeats.
    pub heartbeat: Duration,
    /// Shortest and longest election time-out.
    pub election: (Duration, Duration),
    /// Free bytes below which puts are refused, and the share of the disk in percent.
    pub disk_low: (u64, u8),
    /// Longest step of the cluster's clock at a cold start.
    pub downtime_max: Duration,
    /// Keep-alive of client sockets: idle, interval, probes.
    pub keepalive: (Duration, Duration, u32),
    /// TCP user time-out of client sockets.
    pub user_timeout: Duration,
    /// Bound of a drain.
    pub drain_timeout: Duration,
    /// Become this user once bound.
    pub user: Option<String>,
    /// A tracing filter.
    pub log: String,
    /// Whether the log is JSON.
    pub log_json: bool,
}

/// One address that clients connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listen {
    /// A TCP address; port 0 lets the system choose.
    Tcp(SocketAddr),
    /// A Unix stream socket; a stale socket file is replaced.
    Unix(PathBuf),
}

impl Settings {
    /// Checks what was said.
    ///
    /// # Errors
    ///
    /// The first mistake, with the place where its key was said.
    pub(crate) fn check(said: &Said) -> Result<Self, Mistake> {
        Self::check_config(&said.config).map_err(|mistake| said.locate(mistake))
    }

    /// The configuration with what stands for an empty key.
    pub(crate) fn in_force(&self, config: Config) -> Config {
        Config {
            name: self.name.clone(),
            peer_address: self.peer_address.clone(),
            ..config
        }
    }

    fn check_config(config: &Config) -> Result<Self, Mistake> {
        let name = if config.name.is_empty() {
            host_name()
        } else {
            config.name.clone()
        };
        check_name("name", &name)?;

        if config.listen.is_empty() {
            return Err(Mistake::new(
                "listen",
                "empty",
                "at least one ADDR, ADDR:PORT or unix:PATH",
            ));
        }
        let mut listen = Vec::with_capacity(config.listen.len());
        for text in &config.listen {
            listen.extend(parse_listen(text, config.port)?);
        }
        let peer_listen = address("peer_listen", &config.peer_listen)?;
        let admin_listen = address("admin_listen", &config.admin_listen)?;

        differ(&listen, peer_listen, admin_listen)?;

        let mut initial_members: BTreeMap<String, String> = BTreeMap::new();
        for text in &config.initial_members {
            let Some((member, address)) = text.split_once('=') else {
                return Err(Mistake::new(
                    "initial_members",
                    quoted(text),
                    "NAME=HOST:PORT each",
                ));
            };
            check_name("initial_members", member)?;
            host_port("initial_members", address)?;
            if initial_members.values().any(|other| other == address) {
                return Err(Mistake::new(
                    "initial_members",
                    format!("{address} twice"),
                    "each address once",
                ));
            }
            if initial_members
                .insert(member.to_owned(), address.to_owned())
                .is_some()
            {
                return Err(Mistake::new(
                    "initial_members",
                    format!("{member} twice"),
                    "each name once",
                ));
            }
        }
        for text in &config.join {
            host_port("join", text)?;
        }
        if !initial_members.is_empty()
            && config.join.is_empty()
            && !initial_members.contains_key(&name)
        {
            let names: Vec<&str> = initial_members.keys().map(String::as_str).collect();
            return Err(Mistake::new(
                "name",
                quoted(&name),
                format!("a name out of initial_members ({})", names.join(", ")),
            ));
        }
        let peer_address = if !config.peer_address.is_empty() {
            config.peer_address.clone()
        } else if let Some(address) = initial_members.get(&name) {
            address.clone()
        } else {
            config.peer_listen.clone()
        };
        host_port("peer_address", &peer_address)?;
        let others = initial_members
            .iter()
            .filter(|(member, _)| **member != name)
            .map(|(_, address)| address)
            .chain(&config.join);
        reachable(&peer_address, others)?;
        if initial_members.is_empty() && config.join.is_empty() {
            initial_members.insert(name.clone(), peer_address.clone());
        }

        let body_bytes_max = within(
            "body_bytes_max",
            config.body_bytes_max.into(),
            0,
            limits::BODY_BYTES_MAX.into(),
        )? as u32;
        let reads_local = match config.reads.as_str() {
            "linearizable" => false,
            "local" => true,
            other => {
                return Err(Mistake::new(
                    "reads",
                    quoted(other),
                    "linearizable or local",
                ));
            }
        };
        let log_json = match config.log_format.as_str() {
            "text" => false,
            "json" => true,
            other => return Err(Mistake::new("log_format", quoted(other), "text or json")),
        };
        check_filter(&config.log)?;
        check_user(&config.user)?;

        let heartbeat = within("heartbeat_ms", config.heartbeat_ms, 10, 10_000)?;
        let shortest = within(
            "election_min_ms",
            config.election_min_ms,
            heartbeat * 2,
            60_000,
        )
        .map_err(|mistake| mistake.because("twice heartbeat_ms is the least"))?;
        let longest = within(
            "election_max_ms",
            config.election_max_ms,
            shortest + 1,
            120_000,
        )
        .map_err(|mistake| mistake.because("more than election_min_ms"))?;
        // A lease shorter than an election would expire the sessions of living nodes.
        let lease = within(
            "node_lease_ms",
            config.node_lease_ms,
            longest * 2,
            3_600_000,
        )
        .map_err(|mistake| mistake.because("twice election_max_ms is the least"))?;
        let connections = within(
            "connections_max",
            config.connections_max as u64,
            1,
            1_000_000,
        )?;

        Ok(Self {
            name,
            data_dir: config.data_dir.clone(),
            listen,
            peer_listen,
            peer_address,
            admin_listen,
            initial_members,
            join: config.join.clone(),
            body_bytes_max,
            connections_max: connections as usize,
            reads_local,
            node_lease: Duration::from_millis(lease),
            commit_timeout: Duration::from_millis(within(
                "commit_timeout_ms",
                config.commit_timeout_ms,
                100,
                3_600_000,
            )?),
            heartbeat: Duration::from_millis(heartbeat),
            election: (
                Duration::from_millis(shortest),
                Duration::from_millis(longest),
            ),
            disk_low: (
                config.disk_low_bytes,
                within("disk_low_percent", config.disk_low_percent.into(), 0, 90)? as u8,
            ),
            downtime_max: Duration::from_secs(
                within(
                    "downtime_max_hours",
                    config.downtime_max_hours,
                    0,
                    24 * 3650,
                )? * 3600,
            ),
            keepalive: (
                seconds("keepalive_idle_s", config.keepalive_idle_s)?,
                seconds("keepalive_interval_s", config.keepalive_interval_s)?,
                within("keepalive_probes", config.keepalive_probes.into(), 1, 100)? as u32,
            ),
            user_timeout: seconds("user_timeout_s", config.user_timeout_s)?,
            drain_timeout: seconds("drain_timeout_s", config.drain_timeout_s)?,
            user: (!config.user.is_empty()).then(|| config.user.clone()),
            log: config.log.clone(),
            log_json,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut Config)) -> Result<Settings, String> {
        let mut config = Config {
            name: "trellis-0".to_owned(),
            ..Config::default()
        };
        change(&mut config);
        Settings::check_config(&config).map_err(|mistake| mistake.to_string())
    }

    #[test]
    fn without_members_a_node_is_a_cluster_of_one_on_loopback() {
        let settings = check(|_| ()).expect("the defaults are sound");
        assert_eq!(
            settings.listen,
            [Listen::Tcp(([127, 0, 0, 1], 11300).into())]
        );
        let members: Vec<_> = settings.initial_members.into_iter().collect();
        assert_eq!(
            members,
            [("trellis-0".to_owned(), "127.0.0.1:11301".to_owned())]
        );
    }

    #[test]
    fn beanstalkds_way_of_saying_where_to_listen() {
        let listen = |text: &str| {
            let text = text.to_owned();
            check(|config| {
                config.listen = vec![text];
                config.port = 5;
            })
            .map(|settings| settings.listen)
        };
        assert_eq!(
            listen("::"),
            Ok(vec![Listen::Tcp("[::]:5".parse().expect("an address"))])
        );
        assert_eq!(
            listen("0.0.0.0:7"),
            Ok(vec![Listen::Tcp("0.0.0.0:7".parse().expect("an address"))])
        );
        assert_eq!(
            listen("unix:/run/b.sock"),
            Ok(vec![Listen::Unix("/run/b.sock".into())])
        );
        assert_eq!(
            listen("unix:"),
            Err("configuration: listen is \"unix:\"; allowed is unix:PATH with a path of 1 to 107 bytes".into())
        );
    }

    #[test]
    fn a_node_outside_its_own_list_of_members_is_a_mistake() {
        let found = check(|config| config.initial_members = vec!["a=h:1".into(), "b=h:2".into()]);
        assert_eq!(
            found.expect_err("trellis-0 is not in the list"),
            "configuration: name is \"trellis-0\"; allowed is a name out of initial_members (a, b)"
        );
    }

    #[test]
    fn no_two_addresses_are_the_same() {
        let found = check(|config| config.port = 11301).expect_err("peers are there");
        assert_eq!(
            found,
            "configuration: peer_listen is 127.0.0.1:11301; allowed is another address than \
             127.0.0.1:11301, where clients connect"
        );
        let found = check(|config| config.listen = vec!["0.0.0.0:11302".into()]);
        assert!(found.is_err_and(|why| why.contains("admin_listen is 127.0.0.1:11302")));
        let found = check(|config| config.admin_listen = "[::]:11301".into());
        assert!(found.is_err_and(|why| why.contains("which is peer_listen")));
        assert!(check(|config| config.listen = vec!["127.0.0.2:11301".into()]).is_ok());

        let found = check(|config| {
            config.initial_members = vec!["trellis-0=h:1".into(), "trellis-1=h:1".into()];
        });
        assert_eq!(
            found.expect_err("two nodes at one address"),
            "configuration: initial_members is h:1 twice; allowed is each address once"
        );
    }

    /// Recorded in the membership, such an address is each reader's own machine.
    #[test]
    fn an_address_that_leads_nobody_here_is_a_mistake() {
        let allowed = "allowed is HOST:PORT at which the other nodes find this one; it is that of \
                       initial_members, else peer_listen, unless peer_address says another";
        let unspecified = |config: &mut Config| config.peer_listen = "0.0.0.0:11301".into();
        assert_eq!(
            check(unspecified).expect_err("nobody's address"),
            format!("configuration: peer_address is 0.0.0.0:11301; {allowed}")
        );
        assert!(check(|config| config.peer_listen = "[::]:11301".into()).is_err());
        let found = check(|config| {
            unspecified(config);
            config.peer_address = "queue-0.example:11301".into();
        });
        assert!(found.is_ok(), "a name is asked when somebody connects");
        let found = check(|config| config.join = vec!["10.0.0.1:11301".into()]);
        assert_eq!(
            found.expect_err("loopback"),
            format!(
                "configuration: peer_address is 127.0.0.1:11301, which 10.0.0.1:11301 can't reach; {allowed}"
            )
        );
        let members = |own: &str| {
            check(|config| {
                config.initial_members = vec![
                    format!("trellis-0={own}"),
                    "trellis-1=10.0.0.2:11301".into(),
                ];
            })
        };
        assert!(members("127.0.0.1:11301").is_err());
        assert!(members("10.0.0.1:11301").is_ok());
    }

    #[test]
    fn what_serve_would_not_do_as_meant_is_a_mistake() {
        for (log, sound) in [
            ("warn", true),
            ("INFO", true),
            ("info,trellis_node=debug", true),
            ("info,[batch]=trace", true),
            ("loud", false),
            ("info,trellis", false),
            ("info,trellis=loud", false),
            ("", false),
        ] {
            let found = check(|config| config.log = log.into());
            assert_eq!(found.is_ok(), sound, "{log:?}: {:?}", found.err());
        }
        assert!(check(|config| config.user = "root".into()).is_ok());
        let found = check(|config| config.user = "nobody-here".into());
        assert_eq!(
            found.expect_err("there is no such user"),
            "configuration: user is \"nobody-here\"; allowed is a user of this system"
        );
        assert!(check(|config| config.join = vec!["a b:1".into()]).is_err());
    }

    #[test]
    fn what_is_in_force_has_no_empty_name() {
        let config = Config {
            peer_listen: "127.0.0.1:5".into(),
            ..Config::default()
        };
        let settings = Settings::check_config(&config).expect("sound");
        let shown = settings.in_force(config);
        assert_eq!(shown.name, settings.name);
        assert_eq!(shown.peer_address, "127.0.0.1:5");
    }

    #[test]
    fn times_that_contradict_each_other_are_refused() {
        let found = check(|config| config.election_max_ms = 400);
        assert_eq!(
            found.expect_err("shorter than the shortest"),
            "configuration: election_max_ms is 400; allowed is a whole number from 501 to 120000 \
             (more than election_min_ms)"
        );
        let found = check(|config| config.heartbeat_ms = 1000);
        assert_eq!(
            found.expect_err("no time for two of them"),
            "configuration: election_min_ms is 500; allowed is a whole number from 2000 to 60000 \
             (twice heartbeat_ms is the least)"
        );
        assert!(
            check(|config| config.node_lease_ms = 1000).is_err(),
            "a lease spans an election"
        );
        assert!(check(|config| config.body_bytes_max = 64 << 20).is_ok());
        assert!(check(|config| config.body_bytes_max = (64 << 20) + 1).is_err());
    }
}
