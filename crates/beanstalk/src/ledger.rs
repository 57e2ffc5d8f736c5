use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

/// Bytes that the node keeps for its slow connections, all of them together: bodies that were not
/// read by their client yet, or whose sender stopped in the middle. At the bound the connection
/// that has been keeping bytes here for longest is closed, so that a few who dawdle can't use up
/// what all others need.
///
/// Source: architecture, section 10 rule 6 and section 11.
#[derive(Debug)]
pub(crate) struct Ledger<D> {
    bytes_max: usize,
    book: Mutex<Book<D>>,
}

#[derive(Debug)]
struct Book<D> {
    bytes: usize,
    next: u64,
    /// By the moment they came to owe, the longest first.
    debts: BTreeMap<u64, Debt<D>>,
}

#[derive(Debug)]
struct Debt<D> {
    bytes: usize,
    debtor: Weak<D>,
}

/// Who can be told to go.
pub(crate) trait Debtor {
    /// Ends the connection soon; called while the ledger is locked, so it must not come back here.
    fn evict(&self);
}

/// One connection's line in the ledger; empty when the connection owes nothing.
#[derive(Debug)]
pub(crate) struct Seat<D: Debtor> {
    ledger: Arc<Ledger<D>>,
    number: Option<u64>,
}

impl<D: Debtor> Ledger<D> {
    /// A ledger that holds at most `bytes_max` bytes; what alone is larger is admitted alone.
    pub(crate) fn new(bytes_max: usize) -> Arc<Self> {
        let book = Mutex::new(Book {
            bytes: 0,
            next: 0,
            debts: BTreeMap::new(),
        });
        Arc::new(Self { bytes_max, book })
    }

    /// Bytes kept now.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.book.lock().bytes
    }

    /// A line for a new connection.
    pub(crate) fn seat(self: &Arc<Self>) -> Seat<D> {
        Seat {
            ledger: Arc::clone(self),
            number: None,
        }
    }
}

impl<D: Debtor> Seat<D> {
    /// Says that `debtor` now keeps `bytes`. Its age counts from when it last kept none, or, with
    /// `moved`, from now: what moves is not what dawdles.
    pub(crate) fn set(&mut self, bytes: usize, moved: bool, debtor: &Weak<D>) {
        if bytes == 0 && self.number.is_none() {
            return;
        }
        let mut book = self.ledger.book.lock();
        let before = self
            .number
            .and_then(|number| book.debts.remove(&number))
            .map_or(0, |debt| debt.bytes);
        book.bytes = book.bytes - before + bytes;
        if bytes == 0 {
            self.number = None;
            return;
        }
        let number = self.number.filter(|_| !moved).unwrap_or_else(|| {
            book.next += 1;
            book.next
        });
        self.number = Some(number);
        book.debts.insert(
            number,
            Debt {
                bytes,
                debtor: debtor.clone(),
            },
        );

        // The one who owes longest goes; whoever owes alone may owe more than the bound.
        while book.bytes > self.ledger.bytes_max && book.debts.len() > 1 {
            let Some((_, debt)) = book.debts.pop_first() else {
                break;
            };
            book.bytes -= debt.bytes;
            if let Some(debtor) = debt.debtor.upgrade() {
                debtor.evict();
            }
        }
    }
}

impl<D: Debtor> Drop for Seat<D> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let mut book = self.ledger.book.lock();
            if let Some(debt) = book.debts.remove(&number) {
                book.bytes -= debt.bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[derive(Default)]
    struct Client(AtomicBool);

    impl Debtor for Client {
        fn evict(&self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    fn gone(client: &Client) -> bool {
        client.0.load(Ordering::Relaxed)
    }

    #[test]
    fn at_the_bound_the_one_who_owes_longest_goes() {
        let ledger = Ledger::new(100);
        let (ann, bob, eve) = (
            Arc::new(Client::default()),
            Arc::new(Client::default()),
            Arc::new(Client::default()),
        );
        let (mut anns, mut bobs, mut eves) = (ledger.seat(), ledger.seat(), ledger.seat());

        anns.set(40, false, &Arc::downgrade(&ann));
        bobs.set(40, false, &Arc::downgrade(&bob));
        anns.set(0, false, &Arc::downgrade(&ann));
        anns.set(40, false, &Arc::downgrade(&ann));
        assert_eq!(ledger.bytes(), 80);

        eves.set(60, false, &Arc::downgrade(&eve));
        assert!(gone(&bob), "Ann had paid in between, so Bob owes longest");
        assert!(!gone(&ann) && !gone(&eve));
        assert_eq!(ledger.bytes(), 100);

        drop((bobs, anns));
        assert_eq!(ledger.bytes(), 60, "who leaves owes nothing");
    }

    #[test]
    fn who_owes_alone_may_owe_more_than_the_bound() {
        let ledger = Ledger::new(100);
        let ann = Arc::new(Client::default());
        let mut anns = ledger.seat();
        anns.set(1000, false, &Arc::downgrade(&ann));
        assert!(!gone(&ann));
    }
}
