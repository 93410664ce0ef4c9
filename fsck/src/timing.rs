//! How much time and memory the work took, as `-t` and `-tt` print it. All of it comes from the kernel's own account of
//! this process; what cannot be read there counts as nothing.

use std::time::Instant;

/// Ticks of the clock in a second by which the kernel counts processor time for programs.
const TICKS: f64 = 100.0;

/// Time and traffic up to a moment.
#[derive(Clone, Copy, Debug)]
struct Usage {
    at: Instant,
    /// Processor time of the program itself and of the kernel for it, in ticks.
    user: u32,
    system: u32,
    /// Bytes that were read and written by calls.
    read: u64,
    written: u64,
}

/// A watch that was started.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Usage);

fn proc_text(name: &str) -> String {
    std::fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default()
}

/// The number behind a name at the start of a line.
fn named(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

impl Usage {
    fn now() -> Self {
        // The program's name may hold anything, but no closing bracket follows it.
        let stat = proc_text("stat");
        let fields: Vec<&str> =
            stat.rsplit(')').next().map(|rest| rest.split_whitespace().collect()).unwrap_or_default();
        let ticks = |at: usize| fields.get(at).and_then(|text| text.parse().ok()).unwrap_or(0);
        let traffic = proc_text("io");
        Self {
            at: Instant::now(),
            user: ticks(11),
            system: ticks(12),
            read: named(&traffic, "rchar:"),
            written: named(&traffic, "wchar:"),
        }
    }
}

impl Stopwatch {
    /// Starts now.
    pub fn start() -> Self {
        Self(Usage::now())
    }

    /// What was used since the start, in two lines: memory in use and its peak; wall, user and system time; traffic.
    pub fn lines(&self, before: &str) -> String {
        let (start, end) = (self.0, Usage::now());
        let seconds = end.at.duration_since(start.at).as_secs_f64();
        let status = proc_text("status");
        let ticks = |from: u32, to: u32| f64::from(to.saturating_sub(from)) / TICKS;
        let read = end.read.saturating_sub(start.read).div_ceil(1 << 20);
        let written = end.written.saturating_sub(start.written).div_ceil(1 << 20);
        let megabytes = u32::try_from(read.saturating_add(written)).map_or(f64::INFINITY, f64::from);
        let rate = if seconds > 0.0 { megabytes / seconds } else { 0.0 };
        format!(
            "{before}Memory used: {}k/{}k, time: {:5.2}/{:5.2}/{:5.2}\n\
             {before}I/O read: {read}MB, write: {written}MB, rate: {rate:.2}MB/s",
            named(&status, "VmRSS:"),
            named(&status, "VmHWM:"),
            seconds,
            ticks(start.user, end.user),
            ticks(start.system, end.system),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_memory_and_time() {
        let watch = Stopwatch::start();
        let text = watch.lines("Pass 1: ");
        let (memory, traffic) = text.split_once('\n').unwrap();
        assert!(memory.starts_with("Pass 1: Memory used: ") && memory.contains("k, time:  0."), "{memory}");
        assert!(!memory.contains(" 0k/0k"), "{memory}");
        assert!(traffic.starts_with("Pass 1: I/O read: ") && traffic.ends_with("MB/s"), "{traffic}");
    }

    #[test]
    fn what_is_not_told_counts_as_nothing() {
        assert_eq!(named("VmRSS:     120 kB\nVmHWM: x\n", "VmRSS:"), 120);
        assert_eq!(named("VmRSS:     120 kB\nVmHWM: x\n", "VmHWM:"), 0);
    }
}
