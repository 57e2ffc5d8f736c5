use std::{
    io,
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
