//! Checked access to integers inside a slice, for records that are not a fixed struct.
//!
//! Fixed structures are [`zerocopy`] structs in [`crate::disk`]; these helpers serve lists, tails and odd records.
//! Reading outside the slice gives `None`; so does writing, and then nothing is changed.

use byteorder::{BE, ByteOrder, LE};

macro_rules! accessors {
    ($($get:ident, $put:ident, $type:ty, $order:ident, $read:ident, $write:ident, $size:literal, $what:literal;)*) => {$(
        #[doc = concat!("The ", $what, " at byte `at`, or `None` if it does not lie inside the slice.")]
        pub fn $get(bytes: &[u8], at: usize) -> Option<$type> {
            span(bytes, at, $size).map($order::$read)
        }

        #[doc = concat!("Writes a ", $what, " at byte `at`; `None` if it does not fit inside the slice.")]
        pub fn $put(bytes: &mut [u8], at: usize, value: $type) -> Option<()> {
            span_mut(bytes, at, $size).map(|place| $order::$write(place, value))
        }
    )*};
}

accessors! {
    le16, put_le16, u16, LE, read_u16, write_u16, 2, "little-endian 16-bit integer";
    le32, put_le32, u32, LE, read_u32, write_u32, 4, "little-endian 32-bit integer";
    le64, put_le64, u64, LE, read_u64, write_u64, 8, "little-endian 64-bit integer";
    be16, put_be16, u16, BE, read_u16, write_u16, 2, "big-endian 16-bit integer";
    be32, put_be32, u32, BE, read_u32, write_u32, 4, "big-endian 32-bit integer";
    be64, put_be64, u64, BE, read_u64, write_u64, 8, "big-endian 64-bit integer";
}

/// `length` bytes from byte `at`, or `None` if they do not all lie inside the slice.
pub fn span(bytes: &[u8], at: usize, length: usize) -> Option<&[u8]> {
    bytes.get(at..at.checked_add(length)?)
}

/// The same as [`span`], writable.
pub fn span_mut(bytes: &mut [u8], at: usize, length: usize) -> Option<&mut [u8]> {
    let end = at.checked_add(length)?;
    bytes.get_mut(at..end)
}

/// Whether every byte is zero. Compares in chunks, since images are mostly holes.
pub fn all_zero(bytes: &[u8]) -> bool {
    let (chunks, rest) = bytes.as_chunks::<32>();
    chunks.iter().all(|chunk| *chunk == [0; 32]) && rest.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_stay_inside() {
        let mut bytes = [0u8; 6];
        assert_eq!(put_le32(&mut bytes, 2, 0x0403_0201), Some(()));
        assert_eq!(bytes, [0, 0, 1, 2, 3, 4]);
        assert_eq!(be16(&bytes, 2), Some(0x0102));
        assert_eq!(put_le32(&mut bytes, 3, 0), None);
        assert_eq!(le32(&bytes, usize::MAX), None);
        assert_eq!(bytes, [0, 0, 1, 2, 3, 4]);
    }

    #[test]
    fn zero_needs_every_byte() {
        assert!(all_zero(&[0; 100]));
        for at in 0..100 {
            let mut bytes = [0u8; 100];
            bytes[at] = 1;
            assert!(!all_zero(&bytes), "byte {at}");
        }
    }
}
