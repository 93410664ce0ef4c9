//! How far a program is: a bar on a terminal, protocol lines on a descriptor, nothing in a pipe.
//!
//! The line protocol is that of `e2fsck -C`, which systemd-fsck, libblockdev and others read: `pass current maximum
//! device` and a newline, the device exactly as it was typed.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::fs::{Mode, OFlags};

/// A point of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which pass, from 1. Work without passes is pass 1.
    pub pass: u32,
    /// How much of the pass is done.
    pub current: u64,
    /// How much there is to do.
    pub maximum: u64,
}

/// Whoever shows how far the work is.
pub trait Progress: Send + Sync {
    /// The work has come this far. May be called often and by many threads.
    fn update(&self, step: Step);

    /// The work is over, or text is about to be printed: whatever was drawn is taken away.
    fn clear(&self) {}
}

/// Shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn update(&self, _step: Step) {}
}

/// A switch that signals turn, as SIGUSR1 and SIGUSR2 do for e2fsck.
#[derive(Clone, Debug)]
pub struct Switch(Arc<AtomicBool>);

impl Switch {
    /// A switch in this position.
    pub fn new(on: bool) -> Self {
        Self(Arc::new(AtomicBool::new(on)))
    }

    /// Turns it. Safe in a signal handler.
    pub fn turn(&self, on: bool) {
        self.0.store(on, Ordering::Relaxed);
    }

    /// Whether it is on.
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Any progress behind a switch.
#[derive(Debug)]
pub struct Switched<P> {
    inner: P,
    switch: Switch,
}

impl<P: Progress> Switched<P> {
    /// Shows progress only while the switch is on.
    pub fn new(inner: P, switch: Switch) -> Self {
        Self { inner, switch }
    }
}

impl<P: Progress> Progress for Switched<P> {
    fn update(&self, step: Step) {
        if self.switch.is_on() {
            self.inner.update(step);
        } else {
            self.inner.clear();
        }
    }

    fn clear(&self) {
        self.inner.clear();
    }
}

/// Protocol lines to a writer.
#[derive(Debug)]
pub struct Lines<W> {
    device: String,
    to: Mutex<Option<W>>,
}

impl<W: Write + Send> Lines<W> {
    /// Lines about a device, which is named as the user typed it.
    pub fn new(device: impl Into<String>, to: W) -> Self {
        Self { device: device.into(), to: Mutex::new(Some(to)) }
    }
}

impl<W: Write + Send> Progress for Lines<W> {
    fn update(&self, step: Step) {
        let line = format!("{} {} {} {}\n", step.pass, step.current, step.maximum, self.device);
        let mut to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        // A reader that went away wants no more lines; the check goes on without it.
        let gone =
            to.as_mut().is_some_and(|to| to.write_all(line.as_bytes()).and_then(|()| to.flush()).is_err());
        if gone {
            *to = None;
        }
    }
}

/// Where e2fsck's five passes end, in percent of the whole; callers such as systemd-fsck use the same.
pub const FSCK_PASS_ENDS: &[u64] = &[70, 90, 92, 95, 100];

/// One pass that is the whole.
pub const SINGLE_PASS: &[u64] = &[100];

/// How much of the whole is done, in thousandths. Passes beyond the last are the end.
pub fn thousandths(step: Step, pass_ends: &[u64]) -> u64 {
    let Some(index) = usize::try_from(step.pass).ok().and_then(|pass| pass.checked_sub(1)) else { return 0 };
    let Some(end) = pass_ends.get(index) else { return 1000 };
    let start = index.checked_sub(1).and_then(|before| pass_ends.get(before)).copied().unwrap_or(0);
    let share = u128::from(end.saturating_sub(start)).saturating_mul(10);
    let done = u128::from(step.current.min(step.maximum)).saturating_mul(share);
    let done = done.checked_div(u128::from(step.maximum)).unwrap_or(share);
    start.saturating_mul(10).saturating_add(u64::try_from(done).unwrap_or(0))
}

/// A bar on standard error; it draws nothing where that is not a terminal.
pub struct Bar {
    title: String,
    pass_ends: &'static [u64],
    target: fn() -> ProgressDrawTarget,
    /// What is drawn, if anything is.
    drawn: Mutex<Option<ProgressBar>>,
    /// The position that is drawn, so that most updates end at one comparison.
    position: AtomicU64,
}

/// A position that is never drawn.
const NOWHERE: u64 = u64::MAX;

impl Bar {
    /// A bar with a title, over passes that end at these percents.
    pub fn new(title: impl Into<String>, pass_ends: &'static [u64]) -> Self {
        Self {
            title: title.into(),
            pass_ends,
            target: ProgressDrawTarget::stderr,
            drawn: Mutex::new(None),
            position: AtomicU64::new(NOWHERE),
        }
    }

    fn draw(&self) -> ProgressBar {
        let bar = ProgressBar::with_draw_target(Some(1000), (self.target)()).with_message(self.title.clone());
        match ProgressStyle::with_template("{msg}: |{bar:40}| {percent:>3}%") {
            Ok(style) => bar.with_style(style.progress_chars("=- ")),
            Err(_) => bar,
        }
    }
}

impl Progress for Bar {
    fn update(&self, step: Step) {
        let position = thousandths(step, self.pass_ends);
        if self.position.swap(position, Ordering::Relaxed) == position {
            return;
        }
        let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        drawn.get_or_insert_with(|| self.draw()).set_position(position);
    }

    fn clear(&self) {
        let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bar) = drawn.take() {
            bar.finish_and_clear();
        }
        self.position.store(NOWHERE, Ordering::Relaxed);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A bar where standard error is a terminal and `E2FSPROGS_SKIP_PROGRESS` is not set, else nothing.
pub fn on_terminal(title: impl Into<String>, pass_ends: &'static [u64]) -> Box<dyn Progress> {
    if io::stderr().is_terminal() && std::env::var_os("E2FSPROGS_SKIP_PROGRESS").is_none() {
        Box::new(Bar::new(title, pass_ends))
    } else {
        Box::new(Silent)
    }
}

/// The argument of `-C`: a descriptor, 0 for a bar, negative to start switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The descriptor for lines, or 0.
    pub descriptor: u32,
    /// Whether progress is shown from the start.
    pub on: bool,
}

impl Completion {
    /// Reads the argument; `None` if it is no number.
    pub fn parse(argument: &str) -> Option<Self> {
        let number: i32 = argument.trim_start().parse().ok()?;
        Some(Self { descriptor: number.unsigned_abs(), on: number >= 0 })
    }

    /// The progress that the argument asks for, about a device as it was typed, and the switch that turns it.
    pub fn start(self, device: &str) -> io::Result<(Box<dyn Progress>, Switch)> {
        let switch = Switch::new(self.on);
        let progress: Box<dyn Progress> = if self.descriptor == 0 {
            Box::new(Switched::new(Bar::new(device, FSCK_PASS_ENDS), switch.clone()))
        } else {
            let lines = Lines::new(device, open_descriptor(self.descriptor)?);
            Box::new(Switched::new(lines, switch.clone()))
        };
        Ok((progress, switch))
    }
}

/// A descriptor that the caller of this program left open, to be written.
///
/// Taking a bare number as a descriptor is unsafe in Rust, so it is opened anew by its name in `/proc`. That serves
/// pipes, files (written at their end) and terminals; a socket cannot be opened so, and is an error.
fn open_descriptor(number: u32) -> io::Result<File> {
    match number {
        1 => return Ok(io::stdout().as_fd().try_clone_to_owned()?.into()),
        2 => return Ok(io::stderr().as_fd().try_clone_to_owned()?.into()),
        _ => {}
    }
    // Opening a named pipe without a reader would wait for one for ever; so it is opened not to wait, but written to wait.
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOCTTY;
    let path = format!("/proc/self/fd/{number}");
    let descriptor = rustix::fs::open(path, flags | OFlags::NONBLOCK, Mode::empty())?;
    rustix::fs::fcntl_setfl(&descriptor, OFlags::APPEND)?;
    Ok(descriptor.into())
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::sync::LazyLock;

    use indicatif::InMemoryTerm;

    use super::*;

    fn step(pass: u32, current: u64, maximum: u64) -> Step {
        Step { pass, current, maximum }
    }

    /// A writer whose bytes can be looked at while it is in use.
    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Shared {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn protocol_lines_are_exact() {
        let out = Shared::default();
        let lines = Lines::new("i", out.clone());
        lines.update(step(1, 0, 38));
        lines.update(step(5, u64::MAX, u64::MAX));
        lines.clear();
        assert_eq!(out.text(), "1 0 38 i\n5 18446744073709551615 18446744073709551615 i\n");
    }

    #[test]
    fn a_switch_turns_lines_off_and_on() {
        let out = Shared::default();
        let switch = Switch::new(false);
        let lines = Switched::new(Lines::new("/dev/sda1", out.clone()), switch.clone());
        lines.update(step(1, 1, 4));
        switch.turn(true);
        lines.update(step(1, 2, 4));
        switch.turn(false);
        lines.update(step(1, 3, 4));
        assert_eq!(out.text(), "1 2 4 /dev/sda1\n");
    }

    #[test]
    fn a_reader_that_went_away_is_forgotten() {
        struct Broken(Shared);
        impl Write for Broken {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.write_all(bytes)?;
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let out = Shared::default();
        let lines = Lines::new("d", Broken(out.clone()));
        lines.update(step(1, 1, 2));
        lines.update(step(1, 2, 2));
        assert_eq!(out.text(), "1 1 2 d\n");
    }

    #[test]
    fn passes_add_up_to_the_whole() {
        let table = [
            (step(0, 5, 10), 0),
            (step(1, 0, 10), 0),
            (step(1, 5, 10), 350),
            (step(1, 10, 10), 700),
            (step(2, 0, 10), 700),
            (step(3, 1, 2), 910),
            (step(5, 0, 0), 1000),
            (step(5, 99, 10), 1000),
            (step(6, 0, 10), 1000),
            (step(1, u64::MAX, u64::MAX), 700),
        ];
        for (step, expected) in table {
            assert_eq!(thousandths(step, FSCK_PASS_ENDS), expected, "{step:?}");
        }
        assert_eq!(thousandths(step(1, 1, 3), SINGLE_PASS), 333);
    }

    #[test]
    fn the_completion_argument_is_read_as_by_e2fsck() {
        let completion = |descriptor, on| Some(Completion { descriptor, on });
        assert_eq!(Completion::parse("0"), completion(0, true));
        assert_eq!(Completion::parse("5"), completion(5, true));
        assert_eq!(Completion::parse("-5"), completion(5, false));
        assert_eq!(Completion::parse(" 1"), completion(1, true));
        assert_eq!(Completion::parse("x"), None);
        assert_eq!(Completion::parse(""), None);
    }

    #[test]
    fn lines_reach_an_inherited_pipe() {
        let (mut reader, writer) = io::pipe().unwrap();
        let descriptor = u32::try_from(writer.as_raw_fd()).unwrap();
        let (lines, _switch) = Completion { descriptor, on: true }.start("/dev/sda1").unwrap();
        lines.update(step(2, 3, 4));
        drop((lines, writer));
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "2 3 4 /dev/sda1\n");
    }

    #[test]
    fn a_pipe_without_a_reader_does_no_harm_and_a_closed_descriptor_is_an_error() {
        let (reader, writer) = io::pipe().unwrap();
        let descriptor = u32::try_from(writer.as_raw_fd()).unwrap();
        drop(reader);
        let (lines, _switch) = Completion { descriptor, on: true }.start("d").unwrap();
        lines.update(step(1, 1, 2));
        lines.update(step(1, 2, 2));
        assert!(Completion { descriptor: 1_000_000, on: true }.start("d").is_err());
    }

    #[test]
    fn a_bar_draws_is_taken_away_and_comes_back() {
        static TERMINAL: LazyLock<InMemoryTerm> = LazyLock::new(|| InMemoryTerm::new(4, 80));
        let mut bar = Bar::new("disk.img", FSCK_PASS_ENDS);
        bar.target = || ProgressDrawTarget::term_like(Box::new(TERMINAL.clone()));
        let ninety = format!("disk.img: |{}-{}|  90%", "=".repeat(36), " ".repeat(3));
        for _ in 0..2 {
            bar.update(step(2, 10, 10));
            assert_eq!(TERMINAL.contents(), ninety);
            bar.clear();
            assert_eq!(TERMINAL.contents(), "");
        }
    }
}
