use std::{env, fmt, fs, path::PathBuf};

use serde::{Deserialize, Serialize};
use toml::{Table, Value};
use trellis_types::limits;

use crate::args::ServeArgs;

/// What the configuration may say: the file's keys are this struct's fields. Every field has a
/// default; an unknown one is a mistake.
///
/// Later layers win: default < file < `TRELLIS_<KEY>` in the environment < flags. In the
/// environment and in flags a list is written with commas. Nothing below the binary ever sees
/// one of these: [`Settings`](crate::settings::Settings) is made from it once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// This node's name, unique in its cluster and stable. Empty: the host's name.
    pub name: String,
    /// The data folder; made if it is missing.
    pub data_dir: PathBuf,
    /// Where clients connect: ADDR, ADDR:PORT or unix:PATH each.
    pub listen: Vec<String>,
    /// The port of each `listen` that names none.
    pub port: u16,
    /// Where the other nodes connect.
    pub peer_listen: String,
    /// The peer address as the others reach it, HOST:PORT; DNS names are asked again at each
    /// connect. Empty: the one that `initial_members` gives for `name`, else `peer_listen`.
    pub peer_address: String,
    /// Where health, metrics and the admin interface are.
    pub admin_listen: String,
    /// All nodes of the first boot, NAME=HOST:PORT each. Empty: a cluster of one.
    pub initial_members: Vec<String>,
    /// Peer addresses of a cluster to join; such a node never forms one.
    pub join: Vec<String>,
    /// Longest job body in bytes; the same on all nodes.
    pub body_bytes_max: u32,
    /// Client connections of this node.
    pub connections_max: usize,
    /// `linearizable` (asks the leader) or `local` (never older than what this node has told).
    pub reads: String,
    /// How long a silent node keeps its sessions' reservations, in milliseconds.
    pub node_lease_ms: u64,
    /// How long a command waits for a majority before its client gets an error, in milliseconds.
    pub commit_timeout_ms: u64,
    /// Interval of the leader's heartbeats, in milliseconds.
    pub heartbeat_ms: u64,
    /// Shortest election time-out, in milliseconds.
    pub election_min_ms: u64,
    /// Longest election time-out, in milliseconds.
    pub election_max_ms: u64,
    /// Free bytes of disk below which the cluster refuses puts …
    pub disk_low_bytes: u64,
    /// … or this share of the disk, whichever is less, in percent.
    pub disk_low_percent: u8,
    /// Longest time that a cold start of the whole cluster may advance the cluster's clock, in
    /// hours.
    pub downtime_max_hours: u64,
    /// A silent client's socket is first probed after this many seconds.
    pub keepalive_idle_s: u64,
    /// Seconds between two probes.
    pub keepalive_interval_s: u64,
    /// Probes that may stay unanswered.
    pub keepalive_probes: u32,
    /// How long bytes sent to a client may stay unacknowledged, in seconds.
    pub user_timeout_s: u64,
    /// How long a drain may take before the process ends anyway, in seconds.
    pub drain_timeout_s: u64,
    /// Become this user once the addresses are bound. Empty: stay.
    pub user: String,
    /// What to log: `error`, `warn`, `info`, `debug`, `trace`, or a tracing filter.
    pub log: String,
    /// `text` or `json`.
    pub log_format: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: String::new(),
            data_dir: PathBuf::from("trellis-node"),
            listen: vec!["127.0.0.1".to_owned()],
            port: 11300,
            peer_listen: "127.0.0.1:11301".to_owned(),
            peer_address: String::new(),
            admin_listen: "127.0.0.1:11302".to_owned(),
            initial_members: Vec::new(),
            join: Vec::new(),
            body_bytes_max: limits::BODY_BYTES_DEFAULT,
            connections_max: limits::CONNECTIONS_MAX_DEFAULT,
            reads: "linearizable".to_owned(),
            node_lease_ms: 10_000,
            commit_timeout_ms: 5_000,
            heartbeat_ms: 100,
            election_min_ms: 500,
            election_max_ms: 900,
            disk_low_bytes: 1 << 30,
            disk_low_percent: 10,
            downtime_max_hours: 30 * 24,
            keepalive_idle_s: 30,
            keepalive_interval_s: 10,
            keepalive_probes: 3,
            user_timeout_s: 30,
            drain_timeout_s: 30,
            user: String::new(),
            log: "info".to_owned(),
            log_format: "text".to_owned(),
        }
    }
}

/// A mistake in the configuration, as one sentence: the key, what was found and where, what is
/// allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    /// The key.
    pub key: String,
    /// What was found, as written.
    pub found: String,
    /// Where: a file, a variable, a flag. Empty when it is not known any more.
    pub place: String,
    /// What is allowed.
    pub allowed: String,
}

impl Mistake {
    /// A mistake in the value of `key`.
    pub(crate) fn new(key: &str, found: impl fmt::Display, allowed: impl Into<String>) -> Self {
        Self {
            key: key.to_owned(),
            found: found.to_string(),
            place: String::new(),
            allowed: allowed.into(),
        }
    }

    /// With the reason for a bound, for one that comes from another key.
    pub(crate) fn because(mut self, why: &str) -> Self {
        self.allowed = format!("{} ({why})", self.allowed);
        self
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            key,
            found,
            place,
            allowed,
        } = self;
        write!(f, "configuration: {key} is {found}")?;
        if !place.is_empty() {
            write!(f, " ({place})")?;
        }
        write!(f, "; allowed is {allowed}")
    }
}

/// A configuration and, for each key that was said, where.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    /// The merged values.
    pub config: Config,
    /// Key → place.
    pub places: Vec<(String, String)>,
}

impl Said {
    /// Fills in where the key of `mistake` was said.
    pub(crate) fn locate(&self, mut mistake: Mistake) -> Mistake {
        if let Some((_, place)) = self
            .places
            .iter()
            .rev()
            .find(|(key, _)| *key == mistake.key)
        {
            mistake.place.clone_from(place);
        }
        mistake
    }
}

/// Variables named `TRELLIS_…` that are no keys of the file: the command line's own.
const OWN_VARIABLES: [&str; 2] = ["TRELLIS_CONFIG", "TRELLIS_ADDR"];

/// Reads all layers: the file that `args` names, this process' environment, the flags.
///
/// # Errors
///
/// The first mistake: a file that cannot be read or is no TOML, an unknown key, a value of the
/// wrong kind.
pub(crate) fn read(args: &ServeArgs) -> Result<Said, Mistake> {
    let file = match &args.config {
        None => None,
        Some(path) => {
            let place = path.display().to_string();
            let text = fs::read_to_string(path).map_err(|error| {
                Mistake::new(
                    "--config",
                    format!("{place} ({error})"),
                    "a file that can be read",
                )
            })?;
            Some((place, text))
        }
    };
    let environment = env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        name.starts_with("TRELLIS_")
            .then(|| (name, value.to_string_lossy().into_owned()))
    });
    let flags = args
        .overrides()
        .map_err(|found| Mistake::new("--set", found, "KEY=VALUE with a key of the file"))?;
    layer(file, environment.collect(), flags)
}

/// Merges the layers; pure, so that a test can say what the environment holds.
fn layer(
    file: Option<(String, String)>,
    mut environment: Vec<(String, String)>,
    flags: Vec<(String, String, String)>,
) -> Result<Said, Mistake> {
    let kinds = Table::try_from(Config::default())
        .map_err(|error| Mistake::new("defaults", error, "a table"))?;
    let mut said = Said {
        config: Config::default(),
        places: Vec::new(),
    };
    let mut merged = kinds.clone();

    if let Some((place, text)) = file {
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            let line = error
                .span()
                .map_or(1, |span| text[..span.start].lines().count().max(1));
            Mistake::new(
                "--config",
                format!("{place}, line {line}: {}", one_line(error.message())),
                "TOML",
            )
        })?;
        for (key, value) in table {
            put(&mut said, &mut merged, &key, value, &place)?;
        }
    }

    // In a fixed order, so that the same environment always has the same first mistake.
    environment.sort();
    for (variable, text) in environment {
        if OWN_VARIABLES.contains(&variable.as_str()) || is_service_link(&variable) {
            continue;
        }
        let key = variable["TRELLIS_".len()..].to_ascii_lowercase();
        let value = value_of(kinds.get(&key), &text);
        put(&mut said, &mut merged, &key, value, &variable)?;
    }
    for (flag, key, text) in flags {
        let value = value_of(kinds.get(&key), &text);
        put(&mut said, &mut merged, &key, value, &flag)?;
    }

    said.config = merged.try_into().map_err(|error: toml::de::Error| {
        Mistake::new("?", one_line(error.message()), "see docs/operations.md")
    })?;
    Ok(said)
}

/// Takes one key's value into the merged table if it is of the key's kind.
fn put(
    said: &mut Said,
    merged: &mut Table,
    key: &str,
    value: Value,
    place: &str,
) -> Result<(), Mistake> {
    if !merged.contains_key(key) {
        let known: Vec<&str> = merged.keys().map(String::as_str).collect();
        return Err(Mistake {
            key: format!("\"{key}\""),
            found: "no setting".to_owned(),
            place: place.to_owned(),
            allowed: format!("one of {}", known.join(", ")),
        });
    }
    // Alone in a table, so that the decoder can only complain of this key.
    let alone = Table::from_iter([(key.to_owned(), value.clone())]);
    if let Err(error) = alone.try_into::<Config>() {
        return Err(Mistake {
            key: key.to_owned(),
            found: value.to_string(),
            place: place.to_owned(),
            allowed: allowed_for(key, &one_line(error.message())),
        });
    }
    merged.insert(key.to_owned(), value);
    said.places.push((key.to_owned(), place.to_owned()));
    Ok(())
}

/// What a variable or a flag means for a key whose default is `like`.
fn value_of(like: Option<&Value>, text: &str) -> Value {
    match like {
        Some(Value::Integer(_)) => text.parse().map_or_else(|_| text.into(), Value::Integer),
        Some(Value::Array(_)) => Value::Array(
            text.split(',')
                .map(str::trim)
                .filter(|part| !part.is_empty())
                .map(Value::from)
                .collect(),
        ),
        _ => text.into(),
    }
}

/// Kubernetes tells each pod of the services around it in variables; a service called `trellis`
/// makes some that look like ours and are not.
fn is_service_link(variable: &str) -> bool {
    let rest = &variable["TRELLIS_".len()..];
    rest.ends_with("SERVICE_HOST")
        || rest.contains("SERVICE_PORT")
        || rest.contains("PORT_") && (rest.contains("_TCP") || rest.contains("_UDP"))
        || rest.ends_with("PORT")
            && std::env::var(variable).is_ok_and(|value| value.contains("://"))
}

/// What may stand there; some settings have a narrower range than the integers that hold them.
fn allowed_for(key: &str, message: &str) -> String {
    let range = match key {
        "body_bytes_max" => (0, limits::BODY_BYTES_MAX),
        "keepalive_probes" => (1, 100),
        "disk_low_percent" => (0, 90),
        _ => return allowed_by(message),
    };
    format!("a whole number from {} to {}", range.0, range.1)
}

/// Turns serde's "invalid type: string "x", expected u32" into what may stand there.
fn allowed_by(message: &str) -> String {
    match message.rsplit_once("expected ") {
        Some((_, "u8")) => "a whole number from 0 to 255".to_owned(),
        Some((_, "u16")) => "a whole number from 0 to 65535".to_owned(),
        Some((_, "u32")) => "a whole number from 0 to 4294967295".to_owned(),
        Some((_, "u64" | "usize")) => "a whole number, not negative".to_owned(),
        Some((_, "a sequence")) => "a list of strings".to_owned(),
        Some((_, other)) => other.to_owned(),
        None => message.to_owned(),
    }
}

/// The message without line ends: a mistake is one sentence.
fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Option<(String, String)> {
        Some(("t.toml".to_owned(), text.to_owned()))
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn flags_win_over_the_environment_and_that_over_the_file() {
        let said = layer(
            file("port = 1\nbody_bytes_max = 1\nconnections_max = 1\nlisten = [\"::1\"]"),
            pairs(&[
                ("TRELLIS_BODY_BYTES_MAX", "2"),
                ("TRELLIS_CONNECTIONS_MAX", "2"),
            ]),
            vec![("--set".into(), "connections_max".into(), "3".into())],
        )
        .expect("all three layers are sound");
        let config = said.config;
        assert_eq!(
            (config.port, config.body_bytes_max, config.connections_max),
            (1, 2, 3)
        );
        assert_eq!(config.listen, ["::1"]);
        assert_eq!(
            config.reads, "linearizable",
            "what nobody said keeps its default"
        );
    }

    #[test]
    fn a_mistake_is_one_sentence_that_names_key_found_place_and_allowed() {
        let check = |file, environment: &[(&str, &str)], expect: &str| {
            let mistake = layer(file, pairs(environment), Vec::new())
                .expect_err(expect)
                .to_string();
            assert!(mistake.starts_with(expect), "got: {mistake}");
            assert!(!mistake.contains('\n'), "one sentence: {mistake}");
        };
        check(
            file("port = \"x\""),
            &[],
            "configuration: port is \"x\" (t.toml); allowed is a whole number from 0 to 65535",
        );
        check(
            file("prot = 1"),
            &[],
            "configuration: \"prot\" is no setting (t.toml); allowed is one of ",
        );
        check(
            None,
            &[("TRELLIS_BODY_BYTES_MAX", "-1")],
            "configuration: body_bytes_max is -1 (TRELLIS_BODY_BYTES_MAX); allowed is a whole number from 0 to 67108864",
        );
        check(
            None,
            &[("TRELLIS_HEARTBEAT", "5")],
            "configuration: \"heartbeat\" is no setting",
        );
        check(
            file("port = "),
            &[],
            "configuration: --config is t.toml, line 1: ",
        );
    }

    /// `enableServiceLinks` is on by default: a service named trellis must not stop its own pods.
    #[test]
    fn kubernetes_service_links_are_no_settings() {
        let links = pairs(&[
            ("TRELLIS_SERVICE_HOST", "10.0.0.1"),
            ("TRELLIS_SERVICE_PORT_BEANSTALK", "11300"),
            ("TRELLIS_PORT_11300_TCP_ADDR", "10.0.0.1"),
        ]);
        assert!(layer(None, links, Vec::new()).is_ok());
    }

    #[test]
    fn what_is_shown_is_read_back_as_it_was() {
        let shown = toml::to_string(&Config::default()).expect("the defaults can be shown");
        let said = layer(file(&shown), Vec::new(), Vec::new()).expect("and read");
        assert_eq!(said.config, Config::default());
    }
}
