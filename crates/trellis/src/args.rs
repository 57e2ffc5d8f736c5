use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand};

/// A replicated, highly available beanstalkd.
#[derive(Debug, Parser)]
#[command(name = "trellis", version, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// What the binary can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run one node. Without members configured it is a cluster of one, just as durable.
    Serve(Box<ServeArgs>),
    /// Run a whole cluster on this machine: the quick start.
    Local(LocalArgs),
    /// Show what a node knows of itself and its cluster.
    Status {
        #[command(flatten)]
        admin: AdminArgs,
        /// Print the node's own JSON.
        #[arg(long)]
        json: bool,
    },
    /// List and change the members of the cluster.
    Member {
        #[command(subcommand)]
        what: MemberCommand,
    },
    /// Make a node write a snapshot of its state now, and wait until it is written.
    Snapshot {
        #[command(flatten)]
        admin: NodeArgs,
    },
    /// Make a node ready to be stopped: hand leadership over, close its clients' connections.
    Drain {
        #[command(flatten)]
        admin: NodeArgs,
    },
    /// Get a quarantined node's data anew from the others: what it held is moved aside, and it joins
    /// as a new member.
    Rebuild {
        /// The data folder of a node that does not run, or is quarantined; without it the node at
        /// --addr is asked to do it.
        #[arg(short = 'b', long, value_name = "DIR")]
        data_dir: Option<PathBuf>,
        /// Even if the folder is that of the only voter of its cluster, so that nobody else has its
        /// jobs.
        #[arg(long, requires = "data_dir")]
        force: bool,
        #[command(flatten)]
        admin: NodeArgs,
    },
    /// Ask a node whether it is ready; exit code 0 if it is, 1 if not.
    Health {
        #[command(flatten)]
        admin: NodeArgs,
    },
    /// Check or show the configuration that `serve` would use.
    Config {
        #[command(subcommand)]
        what: ConfigCommand,
    },
}

/// Where the admin port is.
#[derive(Debug, Args)]
pub(crate) struct AdminArgs {
    /// The admin port of any node.
    #[arg(
        long,
        value_name = "URL",
        env = "TRELLIS_ADDR",
        default_value = "http://127.0.0.1:11302"
    )]
    pub addr: String,
}

/// Where the admin port of one particular node is.
#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    /// The admin port of the node that is meant.
    #[arg(
        long,
        value_name = "URL",
        env = "TRELLIS_ADDR",
        default_value = "http://127.0.0.1:11302"
    )]
    pub addr: String,
}

/// Changes of membership, one at a time.
#[derive(Debug, Subcommand)]
pub(crate) enum MemberCommand {
    /// List the members.
    List {
        #[command(flatten)]
        admin: AdminArgs,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Invite the waiting node whose peer port is at ADDRESS: it catches up, then votes.
    Add {
        /// Its peer address, host:port.
        address: String,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Remove a member for good. Its id is never used again.
    Remove {
        /// Its name or its id (16 hexadecimal digits).
        member: String,
        /// Even if two voters would be left, so that no death of either is survived.
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Hand leadership over, to MEMBER or to the most advanced voter.
    TransferLeader {
        /// Its name or its id (16 hexadecimal digits).
        member: Option<String>,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Make a node that never formed a cluster forget the cluster it was bound to.
    Unbind {
        #[command(flatten)]
        admin: NodeArgs,
    },
}

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Say whether it has a mistake; exit code 78 if it has.
    Check(Box<ServeArgs>),
    /// Print every setting with its value, as a file that `--config` accepts.
    Show(Box<ServeArgs>),
}

/// Above the flags that only beanstalkd has a meaning for.
const UNUSED: &str = "beanstalkd's flags that do nothing here";

/// What the command line of `serve` may say: a file, and overrides named like its keys.
#[derive(Debug, Default, Args)]
#[command(version, display_name = "trellis", disable_version_flag = true)]
pub(crate) struct ServeArgs {
    /// The configuration file (TOML).
    #[arg(long, value_name = "FILE", env = "TRELLIS_CONFIG")]
    pub config: Option<PathBuf>,
    /// Where clients connect: ADDR, ADDR:PORT or unix:PATH; may be given several times.
    #[arg(short = 'l', long, value_name = "ADDR", value_delimiter = ',')]
    pub listen: Vec<String>,
    /// The port of each --listen that names none.
    #[arg(short = 'p', long, value_name = "PORT")]
    pub port: Option<u16>,
    /// Longest job body accepted, in bytes (at most 67108864).
    #[arg(short = 'z', long, value_name = "BYTES")]
    pub body_bytes_max: Option<u64>,
    /// Become USER once the addresses are bound.
    #[arg(short = 'u', long, value_name = "USER")]
    pub user: Option<String>,
    /// Say more on standard error; twice: everything.
    #[arg(short = 'V', action = ArgAction::Count)]
    pub verbose: u8,
    /// The data folder.
    #[arg(short = 'b', long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// This node's name: unique in its cluster and stable.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Where the other nodes connect, ADDR:PORT.
    #[arg(long, value_name = "ADDR")]
    pub peer_listen: Option<String>,
    /// The peer address as others reach it, HOST:PORT.
    #[arg(long, value_name = "HOST:PORT")]
    pub peer_address: Option<String>,
    /// Where health, metrics and the admin interface are, ADDR:PORT.
    #[arg(long, value_name = "ADDR")]
    pub admin_listen: Option<String>,
    /// All nodes of the cluster's first boot: NAME=HOST:PORT, separated by commas.
    #[arg(long, value_name = "NAME=HOST:PORT", value_delimiter = ',')]
    pub initial_members: Vec<String>,
    /// Join the cluster that one of these peer addresses belongs to; never forms a new one.
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    pub join: Vec<String>,
    /// Any other key of the configuration file.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// Print the version, as beanstalkd's -v does.
    #[arg(short = 'v', action = ArgAction::Version)]
    pub print_version: Option<bool>,
    /// beanstalkd's sync interval: accepted, does nothing.
    #[arg(short = 'f', value_name = "MS", help_heading = UNUSED)]
    pub sync_interval: Option<String>,
    /// beanstalkd's "never sync": accepted, does nothing.
    #[arg(short = 'F', help_heading = UNUSED)]
    pub never_sync: bool,
    /// beanstalkd's binlog file size: accepted, does nothing.
    #[arg(short = 's', value_name = "BYTES", help_heading = UNUSED)]
    pub binlog_bytes: Option<String>,
    /// beanstalkd's old "no compaction": accepted, does nothing.
    #[arg(short = 'n', help_heading = UNUSED)]
    pub no_compaction: bool,
    /// beanstalkd's old "compact": accepted, does nothing.
    #[arg(short = 'c', help_heading = UNUSED)]
    pub compaction: bool,

    /// Set by `trellis local` in its children: end when that process ends.
    #[arg(long, value_name = "PID", hide = true)]
    pub die_with_parent: Option<i32>,
}

impl ServeArgs {
    /// What is said instead of each of beanstalkd's flags that have no meaning here.
    pub(crate) fn unused_flags(&self) -> Vec<&'static str> {
        let mut said = Vec::new();
        if self.sync_interval.is_some() {
            said.push(
                "-f does nothing: every change is synced on a majority before it is answered",
            );
        }
        if self.never_sync {
            said.push(
                "-F does nothing: every change is synced on a majority before it is answered",
            );
        }
        if self.binlog_bytes.is_some() {
            said.push("-s does nothing: the log is cut by snapshots, not by a file size");
        }
        if self.no_compaction {
            said.push("-n does nothing: the log is compacted in the background");
        }
        if self.compaction {
            said.push("-c does nothing: the log is compacted in the background anyway");
        }
        said
    }

    /// The overrides as (flag, key, value text); lists are joined by commas. Else the first `--set`
    /// that is no pair.
    pub(crate) fn overrides(&self) -> Result<Vec<(String, String, String)>, String> {
        let mut all = Vec::new();
        let mut say = |flag: &str, key: &str, value: String| {
            all.push((flag.to_owned(), key.to_owned(), value));
        };
        for pair in &self.set {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(format!("{pair:?}"));
            };
            say("--set", key.trim(), value.trim().to_owned());
        }
        if !self.listen.is_empty() {
            say("--listen", "listen", self.listen.join(","));
        }
        if let Some(port) = self.port {
            say("--port", "port", port.to_string());
        }
        if let Some(bytes) = self.body_bytes_max {
            say("-z", "body_bytes_max", bytes.to_string());
        }
        if let Some(user) = &self.user {
            say("--user", "user", user.clone());
        }
        if let Some(dir) = &self.data_dir {
            say("--data-dir", "data_dir", dir.display().to_string());
        }
        if let Some(name) = &self.name {
            say("--name", "name", name.clone());
        }
        if let Some(address) = &self.peer_listen {
            say("--peer-listen", "peer_listen", address.clone());
        }
        if let Some(address) = &self.peer_address {
            say("--peer-address", "peer_address", address.clone());
        }
        if let Some(address) = &self.admin_listen {
            say("--admin-listen", "admin_listen", address.clone());
        }
        if !self.initial_members.is_empty() {
            say(
                "--initial-members",
                "initial_members",
                self.initial_members.join(","),
            );
        }
        if !self.join.is_empty() {
            say("--join", "join", self.join.join(","));
        }
        match self.verbose {
            0 => {}
            1 => say("-V", "log", "info,trellis=debug".to_owned()),
            _ => say("-VV", "log", "debug".to_owned()),
        }
        Ok(all)
    }
}

/// The quick start: several nodes on this machine.
#[derive(Debug, Args)]
pub(crate) struct LocalArgs {
    /// How many nodes.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=9))]
    pub nodes: u16,
    /// Where their data is: node-0, node-1, … in this folder. Started again, it is found again.
    #[arg(long, value_name = "DIR", default_value = "trellis-data")]
    pub data_dir: PathBuf,
    /// Node i has its clients' port at PORT+10·i, its peers' one above, its admin port two above.
    #[arg(long, value_name = "PORT", default_value_t = 11300)]
    pub base_port: u16,
    /// Leave a node that died down (it is started again after 3 s otherwise).
    #[arg(long)]
    pub no_restart: bool,
    /// A configuration file for all nodes, below what `local` itself sets.
    #[arg(long, value_name = "FILE", env = "TRELLIS_CONFIG")]
    pub config: Option<PathBuf>,
    /// A key of the configuration file for all nodes.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serve(line: &str) -> ServeArgs {
        let cli = Cli::try_parse_from(line.split(' ')).expect("the line parses");
        match cli.command {
            Command::Serve(args) => *args,
            other => panic!("expected serve, got {other:?}"),
        }
    }

    /// `doc/protocol.txt` aside, people's unit files are the contract: beanstalkd's own command
    /// line starts Trellis too.
    #[test]
    fn beanstalkds_flags_are_understood_bundled_and_attached() {
        let args =
            serve("trellis serve -VVz10 -l 0.0.0.0 -p 11400 -b /var/lib/beanstalkd -f0 -Fnc -s 1");
        assert_eq!(args.verbose, 2);
        assert_eq!(args.body_bytes_max, Some(10));
        assert_eq!(args.listen, ["0.0.0.0"]);
        assert_eq!(args.port, Some(11400));
        assert_eq!(
            args.unused_flags().len(),
            5,
            "each one is answered with a line"
        );
    }

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
    }
}
