//! A source that is read by a thread of its own, ahead of whoever writes.
//!
//! Reading many small files is mostly waiting for the system; so is writing them. Entries and contents go through a
//! channel in batches, in the source's order, so that the result is the same bytes. What is held is bounded by a few
//! batches.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use super::entry::{Entry, Kind, Source};
use crate::error::Result;
use crate::num::{index64, wide};

/// Batches that may wait.
const BATCHES: usize = 4;
/// Bytes of contents after which a batch is sent.
const BATCH_BYTES: usize = 1 << 20;
/// Items after which a batch is sent.
const BATCH_ITEMS: usize = 256;

enum Item {
    Entry(Entry),
    /// Bytes of the last entry's contents, and where they begin.
    Data(u64, Vec<u8>),
    /// What ended the source.
    Failed(crate::Error),
}

/// Reads another source ahead.
pub struct ReadAhead {
    batches: Option<Receiver<Vec<Item>>>,
    thread: Option<JoinHandle<()>>,
    items: VecDeque<Item>,
}

impl ReadAhead {
    /// Begins to read a source in a thread. A thread that cannot be had is an error of the system.
    pub fn new(mut source: impl Source + Send + 'static) -> Result<Self> {
        let (sender, receiver) = sync_channel(BATCHES);
        let read = move || {
            let mut batch = Batch { items: Vec::new(), bytes: 0, sender };
            match read_all(&mut source, &mut batch) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => batch.items.push(Item::Failed(error)),
            }
            // Whether the rest is still wanted makes no difference any more.
            let _ = batch.send();
        };
        let thread = std::thread::Builder::new().name("read-ahead".to_owned()).spawn(read);
        let thread = thread.map_err(crate::Error::io(crate::Place::File("thread that reads".to_owned())))?;
        Ok(Self { batches: Some(receiver), thread: Some(thread), items: VecDeque::new() })
    }

    /// The item at a place of those that wait, received if need be; `None` if the source ends before.
    fn item(&mut self, place: usize) -> Option<&Item> {
        while self.items.len() <= place {
            let batch = self.batches.as_ref()?.recv().ok()?;
            self.items.extend(batch);
        }
        self.items.get(place)
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        // Nobody receives any more, which ends the thread at its next batch.
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Batch {
    items: Vec<Item>,
    bytes: usize,
    sender: SyncSender<Vec<Item>>,
}

impl Batch {
    /// Adds an item; `false` if nobody wants more.
    fn push(&mut self, item: Item) -> bool {
        if let Item::Data(_, bytes) = &item {
            self.bytes = self.bytes.saturating_add(bytes.len());
        }
        self.items.push(item);
        (self.bytes < BATCH_BYTES && self.items.len() < BATCH_ITEMS) || self.send()
    }

    fn send(&mut self) -> bool {
        self.bytes = 0;
        self.sender.send(std::mem::take(&mut self.items)).is_ok()
    }
}

/// Reads the source to its end; `false` if nobody wants more.
fn read_all(source: &mut dyn Source, batch: &mut Batch) -> Result<bool> {
    while let Some(entry) = source.next_entry()? {
        let is_file = matches!(entry.kind, Kind::Regular(_));
        if !batch.push(Item::Entry(entry)) {
            return Ok(false);
        }
        let mut next = 0;
        while is_file && let Some(data) = source.next_data(next)? {
            next = next.max(data.start);
            while next < data.end {
                let length = data.end.saturating_sub(next).min(wide(BATCH_BYTES));
                let mut bytes = vec![0; index64(length)];
                source.read(next, &mut bytes)?;
                if !batch.push(Item::Data(next, bytes)) {
                    return Ok(false);
                }
                next = next.saturating_add(length);
            }
        }
    }
    Ok(true)
}

impl Source for ReadAhead {
    fn next_entry(&mut self) -> Result<Option<Entry>> {
        while self.item(0).is_some() {
            match self.items.pop_front() {
                Some(Item::Entry(entry)) => return Ok(Some(entry)),
                Some(Item::Failed(error)) => return Err(error),
                Some(Item::Data(..)) | None => {}
            }
        }
        Ok(None)
    }

    fn next_data(&mut self, offset: u64) -> Result<Option<Range<u64>>> {
        loop {
            match self.item(0) {
                Some(Item::Data(start, bytes)) => {
                    let end = start.saturating_add(wide(bytes.len()));
                    if end > offset {
                        return Ok(Some(offset.max(*start)..end));
                    }
                    self.items.pop_front();
                }
                Some(Item::Failed(_)) => {
                    let failed = self.items.pop_front();
                    return if let Some(Item::Failed(error)) = failed { Err(error) } else { Ok(None) };
                }
                Some(Item::Entry(_)) | None => return Ok(None),
            }
        }
    }

    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let end = offset.saturating_add(wide(buffer.len()));
        let mut place = 0usize;
        while let Some(Item::Data(start, bytes)) = self.item(place) {
            if *start >= end {
                break;
            }
            let from = offset.saturating_sub(*start);
            let to = start.saturating_sub(offset);
            let source = bytes.get(index64(from)..).unwrap_or_default();
            let target = buffer.get_mut(index64(to)..).unwrap_or_default();
            let length = source.len().min(target.len());
            let copied = source.get(..length).unwrap_or_default();
            target.get_mut(..length).unwrap_or_default().copy_from_slice(copied);
            place = place.saturating_add(1);
        }
        Ok(())
    }
}
