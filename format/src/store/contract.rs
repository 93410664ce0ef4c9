//! What every store keeps, as one test that each kind runs on itself.

use std::io::ErrorKind;

use super::Store;
use crate::num;

/// Size of the store that [`check`] wants, all zero. Not a multiple of a block or chunk, so that ends show.
pub(crate) const SIZE: u64 = 200_001;

/// The same, as a length.
pub(crate) const LENGTH: usize = num::index64(SIZE);

/// Holds a zeroed, writable store of [`SIZE`] bytes against the contract of [`Store`].
pub(crate) fn check(store: &dyn Store) {
    assert_eq!(store.size(), SIZE);
    assert!(!store.is_read_only());
    assert_eq!(read(store, 0, LENGTH), vec![0; LENGTH]);
    reads_what_was_written(store);
    refuses_to_pass_the_end(store);
    zeroes_exactly_the_range(store);
    knows_where_its_data_is(store);
    store.flush().unwrap();
    serves_many_threads(store);
}

/// Holds a read-only store, whose bytes are those of [`pattern`], against the contract.
pub(crate) fn check_read_only(store: &dyn Store) {
    assert_eq!(store.size(), SIZE);
    assert!(store.is_read_only());
    assert_eq!(read(store, 0, LENGTH), pattern());
    assert_eq!(read(store, 100_000, 7), &pattern()[100_000..100_007]);
    assert_eq!(store.next_data(0).unwrap().map(|data| data.start), Some(0));
    assert_eq!(store.next_data(SIZE).unwrap(), None);
    if let Some(memory) = store.as_memory() {
        assert_eq!(memory, pattern());
    }
    assert_eq!(store.read_at(SIZE, &mut [0]).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(store.write_at(0, b"x").unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    assert_eq!(store.zero_range(0, 1).unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    store.flush().unwrap();
    assert_eq!(read(store, 0, LENGTH), pattern());
}

/// Bytes that differ from their neighbours and from zero.
pub(crate) fn pattern() -> Vec<u8> {
    (1..=251).cycle().take(LENGTH).collect()
}

fn read(store: &dyn Store, offset: u64, length: usize) -> Vec<u8> {
    let mut buffer = vec![0xee; length];
    store.read_at(offset, &mut buffer).unwrap();
    buffer
}

fn reads_what_was_written(store: &dyn Store) {
    let pattern = pattern();
    store.write_at(0, &pattern).unwrap();
    assert_eq!(read(store, 0, LENGTH), pattern);
    store.write_at(4095, b"seam").unwrap();
    assert_eq!(read(store, 4094, 6), [pattern[4094], b's', b'e', b'a', b'm', pattern[4099]]);
    store.write_at(SIZE - 1, b"z").unwrap();
    assert_eq!(read(store, SIZE - 1, 1), b"z");
    store.write_at(SIZE, b"").unwrap();
    assert_eq!(read(store, SIZE, 0), b"");
    store.write_at(0, &pattern).unwrap();
}

fn refuses_to_pass_the_end(store: &dyn Store) {
    for (offset, length) in [(SIZE - 1, 2), (SIZE, 1), (SIZE + 1, 0), (u64::MAX, 2), (u64::MAX / 2, 4)] {
        let mut buffer = vec![0; length];
        let kind = store.read_at(offset, &mut buffer).unwrap_err().kind();
        assert_eq!(kind, ErrorKind::UnexpectedEof, "read at {offset}");
        let kind = store.write_at(offset, &buffer).unwrap_err().kind();
        assert_eq!(kind, ErrorKind::WriteZero, "write at {offset}");
        let kind = store.zero_range(offset, num::wide(length)).unwrap_err().kind();
        assert_eq!(kind, ErrorKind::WriteZero, "zero_range at {offset}");
    }
    assert_eq!(store.size(), SIZE);
    assert_eq!(read(store, SIZE - 2, 2), &pattern()[LENGTH - 2..]);
}

fn zeroes_exactly_the_range(store: &dyn Store) {
    let ranges = [(0, 1), (4095, 2), (4096, 4096), (10_000, 70_001), (SIZE - 5000, 5000), (77, 0), (0, SIZE)];
    for (offset, length) in ranges {
        let mut expected = pattern();
        store.write_at(0, &expected).unwrap();
        store.zero_range(offset, length).unwrap();
        expected[num::index64(offset)..num::index64(offset + length)].fill(0);
        assert!(read(store, 0, LENGTH) == expected, "{length} bytes zeroed at {offset}");
    }
    assert_eq!(store.size(), SIZE);
}

/// Data may be claimed where there is none, but not the other way round.
fn knows_where_its_data_is(store: &dyn Store) {
    store.zero_range(0, SIZE).unwrap();
    store.write_at(70_000, b"data").unwrap();
    store.write_at(SIZE - 1, b"!").unwrap();
    let contents = read(store, 0, LENGTH);
    for offset in [0, 69_999, 70_003, 70_004, SIZE - 1] {
        let mut at = offset;
        while let Some(data) = store.next_data(at).unwrap() {
            assert!(at <= data.start && data.start < data.end && data.end <= SIZE, "{data:?} from {at}");
            assert!(contents[num::index64(at)..num::index64(data.start)].iter().all(|byte| *byte == 0));
            at = data.end;
        }
        assert!(contents[num::index64(at)..].iter().all(|byte| *byte == 0), "data after {at}");
    }
    assert_eq!(store.next_data(SIZE).unwrap(), None);
    assert_eq!(store.next_data(u64::MAX).unwrap(), None);
}

/// Each thread owns every fourth stretch, so each must read its own bytes back.
fn serves_many_threads(store: &dyn Store) {
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            scope.spawn(move || {
                for round in 0..25 {
                    let at = (round * 4 + u64::from(thread)) * 1500;
                    let bytes = [thread + 1; 1500];
                    store.write_at(at, &bytes).unwrap();
                    assert_eq!(read(store, at, 1500), bytes);
                }
            });
        }
    });
    store.flush().unwrap();
}
