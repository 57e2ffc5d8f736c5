use std::{
    fs, io,
    net::{Ipv4Addr, TcpListener},
    process,
    sync::atomic::{AtomicU16, Ordering},
};

/// Below the range from which the kernel takes ports for outgoing connections, so that nobody
/// grabs one between our look and the server's bind.
const FIRST: u16 = 20_000;
const LAST: u16 = 32_000;

/// A port on loopback that was free a moment ago and that this process has not named before.
///
/// # Errors
///
/// None is left.
pub fn free_port() -> io::Result<u16> {
    find(&[0])
}

/// A base port for three nodes: base + 10·i, + 1 and + 2 were free a moment ago.
///
/// # Errors
///
/// None is left.
pub fn free_base_port() -> io::Result<u16> {
    find(&[0, 1, 2, 10, 11, 12, 20, 21, 22])
}

fn find(offsets: &[u16]) -> io::Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let span = LAST - FIRST;
    // Test processes run side by side; their pids keep them apart.
    let start = (process::id() % u32::from(span)) as u16;
    for _ in 0..2_000 {
        let step = NEXT.fetch_add(30, Ordering::Relaxed) % span;
        let base = FIRST + (start + step) % span;
        let free = |offset: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, base + offset)).is_ok();
        if offsets.iter().all(free) {
            return Ok(base);
        }
    }
    Err(io::Error::other("no free port found"))
}

/// Whether this very process listens on `port` of IPv4: somebody else may have taken it meanwhile,
/// and would answer, too.
pub(super) fn listens(pid: u32, port: u16) -> bool {
    let Ok(table) = fs::read_to_string("/proc/net/tcp") else {
        return false;
    };
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    let sockets: Vec<_> = open
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .map(|link| link.to_string_lossy().into_owned())
        .collect();
    // sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode
    table.lines().skip(1).any(|line| {
        let mut columns = line.split_whitespace();
        let local = columns.nth(1).unwrap_or_default();
        let listening = columns.nth(1) == Some("0A");
        let inode = columns.nth(5).unwrap_or_default();
        let this_port = local.ends_with(&format!(":{port:04X}"));
        listening && this_port && sockets.contains(&format!("socket:[{inode}]"))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Found on a busy machine: nodes of a test had ports that the kernel gives to outgoing
    /// connections, and one was gone when its node started.
    #[test]
    fn no_port_is_one_that_the_kernel_gives_to_outgoing_connections() {
        let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").expect("a range");
        let mut ends = range.split_whitespace().map(|end| end.parse::<u16>());
        let (Some(Ok(first)), Some(Ok(last))) = (ends.next(), ends.next()) else {
            panic!("no range: {range}");
        };
        for _ in 0..500 {
            let base = free_base_port().expect("a port");
            for port in base..base + 30 {
                assert!(!(first..=last).contains(&port), "{port} is in {range}");
            }
        }
    }

    #[test]
    fn no_port_is_named_twice_soon() {
        let named: Vec<u16> = (0..100)
            .flat_map(|_| {
                [
                    free_port().expect("a port"),
                    free_base_port().expect("a port"),
                ]
            })
            .collect();
        let different: BTreeSet<_> = named.iter().collect();
        assert_eq!(different.len(), named.len(), "{named:?}");
    }
}
