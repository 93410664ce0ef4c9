//! Checked access to integers inside a slice, for records that are not a fixed struct.
//!
//! Fixed structures are [`zerocopy`] structs in [`crate::disk`]; these helpers serve lists, tails and odd records.
//! Reading outside the slice gives `None`; so does writing, and then nothing is changed.

macro_rules! accessors {
    ($($get:ident, $put:ident, $type:ty, $from:ident, $to:ident, $size:literal, $what:literal;)*) => {$(
        #[doc = concat!("The ", $what, " at byte `at`, or `None` if it does not lie inside the slice.")]
        pub fn $get(bytes: &[u8], at: usize) -> Option<$type> {
            let end = at.checked_add($size)?;
            bytes.get(at..end)?.try_into().ok().map(<$type>::$from)
        }

        #[doc = concat!("Writes a ", $what, " at byte `at`; `None` if it does not fit inside the slice.")]
        pub fn $put(bytes: &mut [u8], at: usize, value: $type) -> Option<()> {
            let end = at.checked_add($size)?;
            bytes.get_mut(at..end)?.copy_from_slice(&value.$to());
            Some(())
        }
    )*};
}

accessors! {
    le16, put_le16, u16, from_le_bytes, to_le_bytes, 2, "little-endian 16-bit integer";
    le32, put_le32, u32, from_le_bytes, to_le_bytes, 4, "little-endian 32-bit integer";
    le64, put_le64, u64, from_le_bytes, to_le_bytes, 8, "little-endian 64-bit integer";
    be16, put_be16, u16, from_be_bytes, to_be_bytes, 2, "big-endian 16-bit integer";
    be32, put_be32, u32, from_be_bytes, to_be_bytes, 4, "big-endian 32-bit integer";
    be64, put_be64, u64, from_be_bytes, to_be_bytes, 8, "big-endian 64-bit integer";
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
