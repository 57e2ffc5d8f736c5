//! What a single value may be; each mistake names its key, what was found and what is allowed.

use std::{
    net::{SocketAddr, ToSocketAddrs as _},
    path::PathBuf,
    time::Duration,
};

use super::Listen;
use crate::config::Mistake;

/// Clients, peers and the admin interface each need an address of their own.
pub(super) fn differ(
    listen: &[Listen],
    peers: SocketAddr,
    admin: SocketAddr,
) -> Result<(), Mistake> {
    let same = |one: SocketAddr, other: SocketAddr| {
        let ips =
            one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
        one.port() != 0 && one.port() == other.port() && ips
    };
    for clients in listen {
        let Listen::Tcp(clients) = *clients else {
            continue;
        };
        for (key, other) in [("peer_listen", peers), ("admin_listen", admin)] {
            if same(clients, other) {
                return Err(Mistake::new(
                    key,
                    other,
                    format!("another address than {clients}, where clients connect"),
                ));
            }
        }
    }
    if same(peers, admin) {
        let allowed = format!("another address than {peers}, which is peer_listen");
        return Err(Mistake::new("admin_listen", admin, allowed));
    }
    Ok(())
}

/// A tracing filter. One that names a target without a level is refused: it shows nothing else, and
/// most likely a level was meant.
pub(super) fn check_filter(filter: &str) -> Result<(), Mistake> {
    const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
    let mistake = |found: String| {
        let allowed = "error, warn, info, debug, trace, off, or a tracing filter such as \
                       info,trellis_node=debug";
        Err(Mistake::new("log", found, allowed))
    };
    for part in filter.split(',').map(str::trim) {
        let is_level = LEVELS.iter().any(|level| part.eq_ignore_ascii_case(level));
        if !is_level && !part.contains('=') {
            return mistake(quoted(filter));
        }
    }
    match tracing_subscriber::EnvFilter::try_new(filter) {
        Ok(_) => Ok(()),
        Err(error) => mistake(format!("{} ({error})", quoted(filter))),
    }
}

pub(super) fn check_user(user: &str) -> Result<(), Mistake> {
    if user.is_empty() {
        return Ok(());
    }
    match nix::unistd::User::from_name(user) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(Mistake::new("user", quoted(user), "a user of this system")),
        Err(error) => {
            let found = format!("{} ({error})", quoted(user));
            Err(Mistake::new("user", found, "a user of this system"))
        }
    }
}

/// This host's name, as a node is called that was given none.
pub(super) fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

pub(super) fn quoted(text: &str) -> String {
    format!("{text:?}")
}

pub(super) fn check_name(key: &str, name: &str) -> Result<(), Mistake> {
    let sound = (1..=63).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    if sound {
        Ok(())
    } else {
        Err(Mistake::new(
            key,
            quoted(name),
            "a name of 1 to 63 letters, digits and - . _",
        ))
    }
}

pub(super) fn within(key: &str, found: u64, least: u64, most: u64) -> Result<u64, Mistake> {
    if (least..=most).contains(&found) {
        Ok(found)
    } else {
        Err(Mistake::new(
            key,
            found,
            format!("a whole number from {least} to {most}"),
        ))
    }
}

/// A whole number of seconds that a socket option can hold: 1 s to 9 h.
pub(super) fn seconds(key: &str, found: u64) -> Result<Duration, Mistake> {
    within(key, found, 1, 32_767).map(Duration::from_secs)
}

/// `HOST:PORT`; the host may be a DNS name and is not looked up here.
pub(super) fn host_port(key: &str, text: &str) -> Result<(), Mistake> {
    let sound = text.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty()
            && !host.contains(char::is_whitespace)
            && port.parse::<u16>().is_ok_and(|port| port != 0)
    });
    if sound {
        Ok(())
    } else {
        Err(Mistake::new(key, quoted(text), "HOST:PORT"))
    }
}

/// The address that this node tells the others must lead to it from where they are. A name may; it
/// is not looked up here.
pub(super) fn reachable<'a>(
    own: &str,
    mut others: impl Iterator<Item = &'a String>,
) -> Result<(), Mistake> {
    let ip = |text: &str| text.parse().ok().map(|address: SocketAddr| address.ip());
    let Some(here) = ip(own) else {
        return Ok(());
    };
    let allowed = "HOST:PORT at which the other nodes find this one; it is that of initial_members, \
                   else peer_listen, unless peer_address says another";
    if here.is_unspecified() {
        return Err(Mistake::new("peer_address", own, allowed));
    }
    let elsewhere = |other: &&String| ip(other).is_some_and(|other| !other.is_loopback());
    match others.find(elsewhere) {
        Some(other) if here.is_loopback() => Err(Mistake::new(
            "peer_address",
            format!("{own}, which {other} can't reach"),
            allowed,
        )),
        _ => Ok(()),
    }
}

/// An address to bind: `ADDR:PORT`; a host name is looked up now.
pub(super) fn address(key: &str, text: &str) -> Result<SocketAddr, Mistake> {
    text.to_socket_addrs()
        .ok()
        .and_then(|mut found| found.next())
        .ok_or_else(|| {
            Mistake::new(
                key,
                quoted(text),
                "ADDR:PORT, for example 0.0.0.0:11301 or [::]:11301",
            )
        })
}

/// One `listen`: beanstalkd's `-l ADDR` and `-l unix:PATH`, or an address with its own port.
pub(super) fn parse_listen(text: &str, port: u16) -> Result<Vec<Listen>, Mistake> {
    if let Some(path) = text.strip_prefix("unix:") {
        // 107 bytes and a NUL fit the kernel's sockaddr_un.
        return if (1..=107).contains(&path.len()) {
            Ok(vec![Listen::Unix(PathBuf::from(path))])
        } else {
            Err(Mistake::new(
                "listen",
                quoted(text),
                "unix:PATH with a path of 1 to 107 bytes",
            ))
        };
    }
    if let Ok(ip) = text.parse() {
        return Ok(vec![Listen::Tcp(SocketAddr::new(ip, port))]);
    }
    let found = match text.rsplit_once(':') {
        Some(_) => text.to_socket_addrs(),
        None => (text, port).to_socket_addrs(),
    };
    match found.map(|addresses| addresses.map(Listen::Tcp).collect::<Vec<_>>()) {
        Ok(addresses) if !addresses.is_empty() => Ok(addresses),
        _ => Err(Mistake::new(
            "listen",
            quoted(text),
            "ADDR, ADDR:PORT or unix:PATH",
        )),
    }
}
