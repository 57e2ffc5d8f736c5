use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{MutexGuard, Notify},
    time::Instant,
};

/// A fetch from disk may take so long; only then does its connection stand still.
const FETCH: Duration = Duration::from_secs(60);

/// Bytes that the node keeps in memory for its slow connections, all of them together: replies that
/// were not read by their client yet, or bodies whose sender stopped in the middle. At the bound
/// the connection whose bytes have not moved for longest is closed, so that a few who dawdle can't
/// use up what all others need.
///
/// What is still on disk can wait there: it is let in when there is room ([`Seat::grow`]), and only
/// who stands still has to go for it.
///
/// Source: architecture, section 10 rule 6 and section 11.
#[derive(Debug)]
pub(crate) struct Ledger<D> {
    bytes_max: usize,
    stall: Duration,
    book: Mutex<Book<D>>,
    /// First come, first served: a large one is not to wait behind ever more small ones.
    turn: tokio::sync::Mutex<()>,
    /// For the one whose turn it is.
    freed: Notify,
}

#[derive(Debug)]
struct Book<D> {
    bytes: usize,
    next: u64,
    /// By the moment they moved, the longest ago first.
    debts: BTreeMap<u64, Debt<D>>,
}

#[derive(Debug)]
struct Debt<D> {
    bytes: usize,
    moved: Instant,
    /// It waits for its turn, or for room, so it stands still because of us.
    excused: bool,
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
    excused: bool,
}

impl<D: Debtor> Ledger<D> {
    /// A ledger that holds at most `bytes_max` bytes; what alone is larger is admitted alone. Who
    /// does not move for `stall` stands still.
    pub(crate) fn new(bytes_max: usize, stall: Duration) -> Arc<Self> {
        let book = Mutex::new(Book {
            bytes: 0,
            next: 0,
            debts: BTreeMap::new(),
        });
        Arc::new(Self {
            bytes_max,
            stall,
            book,
            turn: tokio::sync::Mutex::new(()),
            freed: Notify::new(),
        })
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
            excused: false,
        }
    }

    /// Waits for the turn to [`Seat::grow`]; it lasts until the guard is dropped.
    pub(crate) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Waits until something was paid back; for the one whose turn it is.
    pub(crate) async fn freed(&self) {
        self.freed.notified().await;
    }

    /// What may be let in from disk: the rest is for what can't wait, so that an answer that is
    /// here already closes nobody.
    fn fetched_bytes_max(&self) -> usize {
        self.bytes_max - self.bytes_max / 4
    }
}

impl<D: Debtor> Book<D> {
    fn take(&mut self, number: Option<u64>) -> usize {
        let debt = number.and_then(|number| self.debts.remove(&number));
        let bytes = debt.map_or(0, |debt| debt.bytes);
        self.bytes -= bytes;
        bytes
    }

    fn put(&mut self, number: u64, debt: Debt<D>) {
        self.bytes += debt.bytes;
        self.debts.insert(number, debt);
    }

    fn evict(&mut self, number: u64) {
        if let Some(debt) = self.debts.remove(&number) {
            self.bytes -= debt.bytes;
            if let Some(debtor) = debt.debtor.upgrade() {
                debtor.evict();
            }
        }
    }

    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl<D: Debtor> Seat<D> {
    pub(crate) fn ledger(&self) -> &Arc<Ledger<D>> {
        &self.ledger
    }

    /// From the next [`Self::set`] until [`Self::grow`] lets it: this one stands still because of us.
    pub(crate) fn excuse(&mut self) {
        self.excused = true;
    }

    /// Says that `debtor` now keeps `bytes`. Its age counts from when it last kept none, or, with
    /// `moved`, from now: what moves is not what dawdles.
    pub(crate) fn set(&mut self, bytes: usize, moved: bool, debtor: &Weak<D>) {
        if bytes == 0 && self.number.is_none() {
            return;
        }
        let mut book = self.ledger.book.lock();
        let kept = self.number.filter(|_| !moved);
        let since = kept.and_then(|number| Some(book.debts.get(&number)?.moved));
        let before = book.take(self.number.take());
        if bytes < before {
            self.ledger.freed.notify_one();
        }
        if bytes == 0 {
            return;
        }
        let number = kept.unwrap_or_else(|| book.next());
        self.number = Some(number);
        book.put(
            number,
            Debt {
                bytes,
                moved: since.unwrap_or_else(Instant::now),
                excused: self.excused,
                debtor: debtor.clone(),
            },
        );

        // The one who moved longest ago goes; whoever owes alone may owe more than the bound.
        while book.bytes > self.ledger.bytes_max && book.debts.len() > 1 {
            let blamed = book.debts.iter().find(|(_, debt)| !debt.excused);
            let first = blamed.or_else(|| book.debts.first_key_value());
            let Some((number, _)) = first.map(|(number, debt)| (*number, debt)) else {
                break;
            };
            book.evict(number);
        }
    }

    /// Lets `by` more bytes of `debtor` into memory if there is room. Else those who stand still go,
    /// as many as it takes; if that is not enough, when to look again at the latest. Without
    /// anybody to wait for, there is room. To be called in one's [`Ledger::turn`].
    pub(crate) fn grow(&mut self, by: usize, debtor: &Weak<D>) -> Result<(), Instant> {
        let mut book = self.ledger.book.lock();
        let now = Instant::now();
        while book.bytes + by > self.ledger.fetched_bytes_max() {
            // Those who wait like this one can't be waited for.
            let others = book
                .debts
                .iter()
                .filter(|(number, debt)| !debt.excused && Some(**number) != self.number);
            let Some((number, again)) = others
                .map(|(number, debt)| (*number, debt.moved + self.ledger.stall))
                .min_by_key(|(_, again)| *again)
            else {
                break;
            };
            if now < again {
                return Err(again);
            }
            book.evict(number);
        }
        self.excused = false;
        let before = book.take(self.number);
        let number = book.next();
        self.number = Some(number);
        book.put(
            number,
            Debt {
                bytes: before + by,
                moved: now + FETCH,
                excused: false,
                debtor: debtor.clone(),
            },
        );
        Ok(())
    }
}

impl<D: Debtor> Drop for Seat<D> {
    fn drop(&mut self) {
        if self.number.is_some() {
            self.ledger.book.lock().take(self.number);
            self.ledger.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const STALL: Duration = Duration::from_secs(5);

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
        let ledger = Ledger::new(100, STALL);
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
        let ledger = Ledger::new(100, STALL);
        let ann = Arc::new(Client::default());
        let mut anns = ledger.seat();
        anns.set(1000, false, &Arc::downgrade(&ann));
        assert!(!gone(&ann));
    }

    #[test]
    fn whose_bytes_move_does_not_go_for_who_stands_still() {
        let ledger = Ledger::new(100, STALL);
        let (ann, bob, eve) = (
            Arc::new(Client::default()),
            Arc::new(Client::default()),
            Arc::new(Client::default()),
        );
        let (mut anns, mut bobs, mut eves) = (ledger.seat(), ledger.seat(), ledger.seat());
        anns.set(40, false, &Arc::downgrade(&ann));
        bobs.set(40, false, &Arc::downgrade(&bob));
        anns.set(39, true, &Arc::downgrade(&ann));
        eves.set(40, false, &Arc::downgrade(&eve));
        assert!(gone(&bob) && !gone(&ann) && !gone(&eve));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_on_disk_waits_until_there_is_room_or_somebody_stands_still() {
        let ledger = Ledger::new(100, STALL);
        let (ann, bob, eve) = (
            Arc::new(Client::default()),
            Arc::new(Client::default()),
            Arc::new(Client::default()),
        );
        let (mut anns, mut bobs, mut eves) = (ledger.seat(), ledger.seat(), ledger.seat());
        let begin = Instant::now();
        anns.grow(40, &Arc::downgrade(&ann)).unwrap();
        bobs.grow(30, &Arc::downgrade(&bob)).unwrap();
        // Fetched.
        anns.set(40, true, &Arc::downgrade(&ann));
        bobs.set(30, true, &Arc::downgrade(&bob));
        let again = eves.grow(20, &Arc::downgrade(&eve));
        assert_eq!(again, Err(begin + STALL), "nobody goes for it");

        tokio::time::advance(Duration::from_secs(4)).await;
        anns.set(39, true, &Arc::downgrade(&ann));
        assert_eq!(eves.grow(20, &Arc::downgrade(&eve)), Err(begin + STALL));
        tokio::time::advance(Duration::from_secs(1)).await;
        eves.grow(20, &Arc::downgrade(&eve)).unwrap();
        assert!(gone(&bob), "it stood still for 5 s");
        assert!(!gone(&ann) && !gone(&eve));
        assert_eq!(ledger.bytes(), 59);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_room_does_not_stand_still_and_is_not_waited_for() {
        let ledger = Ledger::new(100, STALL);
        let (ann, bob) = (Arc::new(Client::default()), Arc::new(Client::default()));
        let (mut anns, mut bobs) = (ledger.seat(), ledger.seat());
        anns.set(70, false, &Arc::downgrade(&ann));
        anns.excuse();
        anns.set(70, false, &Arc::downgrade(&ann));
        tokio::time::advance(STALL).await;
        bobs.grow(20, &Arc::downgrade(&bob)).unwrap();
        assert!(!gone(&ann) && !gone(&bob));

        let fetched = Instant::now() + FETCH + STALL;
        let again = anns.grow(20, &Arc::downgrade(&ann));
        assert_eq!(again, Err(fetched), "its bytes are still being fetched");
    }
}
