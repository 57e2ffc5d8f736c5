/// The three ports of a node of `trellis local`: clients at the base, peers one above, admin two
/// above; the next node ten above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ports {
    /// Clients connect here.
    pub clients: u16,
    /// The other nodes connect here.
    pub peers: u16,
    /// Health, metrics and the admin interface.
    pub admin: u16,
}

impl Ports {
    /// The ports of node `index`; `None` if they are beyond 65535.
    pub(crate) fn of(base: u16, index: u16) -> Option<Self> {
        let clients = index.checked_mul(10)?.checked_add(base)?;
        Some(Self {
            clients,
            peers: clients.checked_add(1)?,
            admin: clients.checked_add(2)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_i_is_ten_ports_further() {
        assert_eq!(
            Ports::of(11300, 2),
            Some(Ports {
                clients: 11320,
                peers: 11321,
                admin: 11322
            })
        );
        assert_eq!(Ports::of(65530, 1), None);
    }
}
