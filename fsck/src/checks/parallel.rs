//! Work in parts on several threads, its results taken in the order of the parts.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread::{self, Builder};

/// How many threads a check may use.
pub fn threads(wanted: Option<usize>) -> usize {
    wanted.unwrap_or_else(|| thread::available_parallelism().map_or(1, Into::into)).max(1)
}

/// Does each part of some work, the first 0, on so many threads, and hands the results to `take` in the order of the parts,
/// on the thread of the caller. With one thread, or where the system gives none, the caller does it all. Each thread has
/// some scratch of its own, for memory that one part leaves to the next.
pub fn in_order<S: Default, R: Send>(
    threads: usize,
    parts: usize,
    work: impl Fn(&mut S, usize) -> R + Sync,
    mut take: impl FnMut(R),
) {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    let draw = || Some(next.fetch_add(1, Relaxed)).filter(|part| *part < parts);
    thread::scope(|scope| {
        let sender = sender;
        let useful = threads.min(parts);
        for _ in 0..if useful > 1 { useful } else { 0 } {
            let (sender, draw, work) = (sender.clone(), &draw, &work);
            let worker = move || {
                let mut scratch = S::default();
                while let Some(part) = draw() {
                    if sender.send((part, work(&mut scratch, part))).is_err() {
                        break;
                    }
                }
            };
            // The others do the work of one that could not be started.
            if Builder::new().spawn_scoped(scope, worker).is_err() {
                break;
            }
        }
        drop(sender);
        let mut wanted = 0;
        let mut early = BTreeMap::new();
        for (part, result) in receiver {
            early.insert(part, result);
            while let Some(result) = early.remove(&wanted) {
                take(result);
                wanted = wanted.saturating_add(1);
            }
        }
    });
    let mut scratch = S::default();
    while let Some(part) = draw() {
        take(work(&mut scratch, part));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_whatever_the_threads() {
        for threads in [0, 1, 2, 5] {
            for parts in [0, 1, 3, 100] {
                let mut taken = Vec::new();
                in_order(threads, parts, |(), part| part * 7, |result| taken.push(result));
                assert_eq!(taken, (0..parts).map(|part| part * 7).collect::<Vec<_>>());
            }
        }
    }
}
