//! Signals: SIGINT and SIGTERM end the program between writes, SIGUSR1 and SIGUSR2 turn progress on and off.
//!
//! A check changes memory alone, so that it can be ended at any moment. What is written is written as a whole: while
//! that goes on a signal is only noted, and the program ends when the writing is done.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ext4kit_cli::progress::Switch;
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::{Handle, Signals};

/// What main program and signals know of each other.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Whether the image is being written.
    writing: bool,
    /// Whether somebody wants the program to end.
    cancelled: bool,
}

/// A thread that waits for signals.
pub struct Watch {
    state: Arc<Mutex<State>>,
    handle: Handle,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    /// Waits for signals from now on. `end` says what there is to say, and gives the exit code.
    pub fn start(switch: Option<Switch>, end: impl Fn() -> u8 + Send + 'static) -> io::Result<Self> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGUSR1, SIGUSR2])?;
        let handle = signals.handle();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for signal in &mut signals {
                match (signal, &switch) {
                    (SIGUSR1 | SIGUSR2, Some(switch)) => switch.turn(signal == SIGUSR1),
                    (SIGUSR1 | SIGUSR2, None) => {}
                    _ => cancel(&shared, &end),
                }
            }
        });
        Ok(Self { state, handle })
    }

    /// From now on a signal waits until [`Self::end_writing`]. Once somebody wanted the program to end this does not
    /// return.
    pub fn begin_writing(&self) {
        lock(&self.state).writing = true;
    }

    /// Nothing is being written any more. Whether the program is to end now.
    pub fn end_writing(&self) -> bool {
        let mut state = lock(&self.state);
        // One who is to end says so himself; the thread must not end him half-way.
        state.writing = state.cancelled;
        state.cancelled
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.handle.close();
    }
}

/// Ends the program, or has it end when what is being written is complete.
#[expect(clippy::exit, reason = "nothing is left to be done: the check changed memory alone")]
fn cancel(state: &Mutex<State>, end: &impl Fn() -> u8) {
    let mut state = lock(state);
    state.cancelled = true;
    if !state.writing {
        // The lock is kept, so that nobody begins to write meanwhile.
        std::process::exit(end().into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_being_written_is_finished_first() {
        let watch = Watch::start(None, || unreachable!("it would end in the midst of a write")).unwrap();
        watch.begin_writing();
        cancel(&watch.state, &|| unreachable!());
        assert!(watch.end_writing());
        // From here on the program ends by itself.
        cancel(&watch.state, &|| unreachable!());
        assert!(watch.end_writing());
    }

    #[test]
    fn nobody_is_told_to_end_unasked() {
        let watch = Watch::start(None, || 0).unwrap();
        watch.begin_writing();
        assert!(!watch.end_writing());
    }
}
