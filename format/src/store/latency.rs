//! A device of a given service time, on the real clock.
//!
//! Each operation takes its time on its own: operations of many threads overlap, as on a device with a deep queue.
//! Put it outside of a [`super::Recorder`], which lets one write through at a time.

use std::io;
use std::ops::Range;
use std::thread;
use std::time::Duration;

use super::Store;

/// How long a device takes for each kind of operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServiceTimes {
    /// For a read, whatever its length.
    pub read: Duration,
    /// For a write or a range of zeros, whatever its length.
    pub write: Duration,
    /// For a flush.
    pub flush: Duration,
}

/// A store that answers as late as a device of these service times would.
#[derive(Debug)]
pub struct Latency<S> {
    inner: S,
    times: ServiceTimes,
}

impl<S: Store> Latency<S> {
    /// Slows a store down.
    pub fn new(inner: S, times: ServiceTimes) -> Self {
        Self { inner, times }
    }
}

/// Sleeping for no time at all would still give up the processor.
fn serve(time: Duration) {
    if !time.is_zero() {
        thread::sleep(time);
    }
}

impl<S: Store> Store for Latency<S> {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        serve(self.times.read);
        self.inner.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        serve(self.times.write);
        self.inner.write_at(offset, bytes)
    }

    fn zero_range(&self, offset: u64, length: u64) -> io::Result<()> {
        serve(self.times.write);
        self.inner.zero_range(offset, length)
    }

    fn flush(&self) -> io::Result<()> {
        serve(self.times.flush);
        self.inner.flush()
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        self.inner.next_data(offset)
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::{MemoryStore, contract};
    use super::*;

    #[test]
    fn keeps_the_contract() {
        contract::check(&Latency::new(MemoryStore::new(contract::SIZE), ServiceTimes::default()));
    }

    #[test]
    fn each_kind_takes_its_own_time() {
        let millis = Duration::from_millis;
        let times = ServiceTimes { read: millis(3), write: millis(6), flush: millis(12) };
        let store = Latency::new(MemoryStore::new(100), times);
        let took = |run: &dyn Fn() -> io::Result<()>| {
            let start = Instant::now();
            run().unwrap();
            start.elapsed()
        };
        // Only lower bounds: a busy machine may take any time longer.
        assert!(took(&|| store.read_at(0, &mut [0])) >= millis(3));
        assert!(took(&|| store.write_at(0, &[1])) >= millis(6));
        assert!(took(&|| store.zero_range(0, 1)) >= millis(6));
        assert!(took(&|| store.flush()) >= millis(12));
    }
}
