use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use trellis_types::seeded::{Bug, planted};

use super::generation::Generation;
use super::shared::Shared;

/// How far those who write behind apply stand back behind those who answer clients; apply waits for
/// them only when two windows are full.
const BEHIND_NICE: i32 = 5;

/// The two threads of one generation: one writes closed windows, the other makes them durable.
/// Two, so that a flush of half a second does not hold up the windows.
pub(super) struct Threads {
    shared: Arc<Shared>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Threads {
    pub(super) fn start(shared: &Arc<Shared>, generation: &Arc<Generation>) -> io::Result<Self> {
        let mut started = Self {
            shared: shared.clone(),
            stop: Arc::default(),
            threads: Vec::new(),
        };
        for (name, work) in [
            ("state-writer", write_windows as fn(&Work)),
            ("state-flusher", flush_when_wanted),
        ] {
            let work_on = Work {
                shared: shared.clone(),
                generation: generation.clone(),
                stop: started.stop.clone(),
            };
            let thread = std::thread::Builder::new()
                .name(name.into())
                .spawn(move || {
                    // Where it may not be lowered the work is done all the same.
                    let _ = rustix::process::nice(BEHIND_NICE);
                    work(&work_on);
                })?;
            started.threads.push(thread);
        }
        Ok(started)
    }
}

/// What is being written is finished; what waits is not begun.
impl Drop for Threads {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.shared.gate.wake();
        self.shared.wake();
        for thread in self.threads.drain(..) {
            // A panic there was reported by the panic itself.
            let _ = thread.join();
        }
    }
}

struct Work {
    shared: Arc<Shared>,
    generation: Arc<Generation>,
    stop: Arc<AtomicBool>,
}

impl Work {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::SeqCst) || self.shared.failure.happened()
    }
}

fn write_windows(work: &Work) {
    let shared = &work.shared;
    while let Some(window) = shared.next_window(|| work.is_over()) {
        // Rule 2: a state ahead of its own log could not be caught up with after a power cut.
        let flushed = || {
            let gate = &shared.gate;
            gate.wait_flushed(window.applied.index, || work.is_over())
        };
        if !planted(Bug::StateAheadOfLog) && !flushed() {
            return;
        }
        let began = Instant::now();
        let written = work
            .generation
            .write(&window)
            .and_then(|()| work.generation.health());
        if let Err(error) = written {
            shared.failure.because("the state can't be written", &error);
            return;
        }
        shared
            .metrics
            .window_seconds
            .observe(began.elapsed().as_secs_f64());
        shared.window_written(&window);
    }
}

fn flush_when_wanted(work: &Work) {
    while work.shared.wait_flush_wanted(|| work.is_over()) {
        // The failure is known to everybody who waits.
        if work.shared.flush(&work.generation).is_err() {
            return;
        }
    }
}
