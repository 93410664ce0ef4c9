//! Block and inode bitmaps: bit `n` of a group is bit `n mod 8` of byte `n / 8`, set where in use.

use super::crc::crc32c;
use crate::num::index;

/// Reads bits of a bitmap.
#[derive(Clone, Copy, Debug)]
pub struct Bits<'a>(pub &'a [u8]);

impl Bits<'_> {
    /// Whether the bit is set. A bit outside the bitmap counts as set: whatever is not there is not free.
    pub fn is_set(self, bit: u32) -> bool {
        self.0.get(index(bit / 8)).is_none_or(|byte| byte & mask(bit) != 0)
    }

    /// The first clear bit from `from` and before `limit`.
    pub fn find_clear(self, from: u32, limit: u32) -> Option<u32> {
        self.scan(from, limit, false)
    }

    /// The first set bit from `from` and before `limit`.
    pub fn find_set(self, from: u32, limit: u32) -> Option<u32> {
        self.scan(from, limit, true)
    }

    /// The first run of clear bits that begins at or after `from` and before `limit`: its start and its length, which
    /// is at most `wanted`.
    pub fn find_clear_run(self, from: u32, limit: u32, wanted: u32) -> Option<(u32, u32)> {
        let start = self.find_clear(from, limit)?;
        let farthest = limit.min(start.saturating_add(wanted.max(1)));
        let end = self.find_set(start, farthest).unwrap_or(farthest);
        Some((start, end.saturating_sub(start)))
    }

    /// How many of the bits from 0 to `limit` are clear. Bits outside the bitmap count as set.
    pub fn count_clear(self, limit: u32) -> u32 {
        let whole = self.0.get(..index(limit / 8)).unwrap_or(self.0);
        let (words, rest) = whole.as_chunks::<8>();
        let mut clear: u32 = words.iter().map(|word| u64::from_le_bytes(*word).count_zeros()).sum();
        clear = clear.saturating_add(rest.iter().map(|byte| byte.count_zeros()).sum());
        let tail = (limit & !7..limit).filter(|bit| !self.is_set(*bit)).count();
        clear.saturating_add(u32::try_from(tail).unwrap_or(0))
    }

    /// Finds a bit of one value, going over whole words that hold none.
    fn scan(self, from: u32, limit: u32, wanted: bool) -> Option<u32> {
        let idle: u8 = if wanted { 0 } else { 0xff };
        let mut bit = from;
        while bit < limit {
            if bit.is_multiple_of(64)
                && let Some(word) = crate::bytes::span(self.0, index(bit / 8), 8)
                && word.iter().all(|byte| *byte == idle)
            {
                bit = bit.saturating_add(64);
            } else if self.is_set(bit) == wanted {
                return Some(bit);
            } else {
                bit = bit.saturating_add(1);
            }
        }
        None
    }
}

const fn mask(bit: u32) -> u8 {
    1 << (bit % 8)
}

/// Sets a bit and returns whether it was set before; `None` outside the bitmap.
pub fn set(bitmap: &mut [u8], bit: u32) -> Option<bool> {
    let byte = bitmap.get_mut(index(bit / 8))?;
    let before = *byte & mask(bit) != 0;
    *byte |= mask(bit);
    Some(before)
}

/// Clears a bit and returns whether it was set before; `None` outside the bitmap.
pub fn clear(bitmap: &mut [u8], bit: u32) -> Option<bool> {
    let byte = bitmap.get_mut(index(bit / 8))?;
    let before = *byte & mask(bit) != 0;
    *byte &= !mask(bit);
    Some(before)
}

/// Sets the bits from `from` up to the bitmap's end: those that stand for nothing.
pub fn set_padding(bitmap: &mut [u8], from: u32) {
    let end = u32::try_from(bitmap.len().saturating_mul(8)).unwrap_or(u32::MAX);
    let aligned = from.next_multiple_of(8).min(end);
    for bit in from..aligned {
        set(bitmap, bit);
    }
    bitmap.get_mut(index(aligned / 8)..).unwrap_or_default().fill(0xff);
}

/// The checksum of a bitmap under `metadata_csum`: over the bytes that hold the bits of a group, without the padding
/// up to the block's end. `bits` is clusters or inodes per group.
pub fn checksum(bitmap: &[u8], bits: u32, filesystem_seed: u32) -> u32 {
    crc32c(filesystem_seed, bitmap.get(..index(bits / 8)).unwrap_or(bitmap))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn searches_agree_with_a_slow_look(bytes in prop::collection::vec(prop_oneof![Just(0u8), Just(0xff), any::<u8>()], 0..40), from in 0u32..330, limit in 0u32..330) {
            let bits = Bits(&bytes);
            let clear = |bit: u32| bytes.get(bit as usize / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 0);
            prop_assert_eq!(bits.find_clear(from, limit), (from..limit).find(|bit| clear(*bit)));
            prop_assert_eq!(bits.find_set(from, limit), (from..limit).find(|bit| !clear(*bit)));
            prop_assert_eq!(bits.count_clear(limit) as usize, (0..limit).filter(|bit| clear(*bit)).count());
            if let Some((start, length)) = bits.find_clear_run(from, limit, 20) {
                prop_assert!((1..=20).contains(&length));
                prop_assert!((start..start + length).all(clear));
                prop_assert!(length == 20 || start + length == limit || !clear(start + length));
            }
        }

        #[test]
        fn padding_sets_the_rest_and_nothing_else(from in 0u32..100) {
            let mut bitmap = [0u8; 10];
            set_padding(&mut bitmap, from);
            for bit in 0..80 {
                prop_assert_eq!(Bits(&bitmap).is_set(bit), bit >= from);
            }
        }
    }

    #[test]
    fn setting_tells_what_was() {
        let mut bitmap = [0u8; 2];
        assert_eq!(set(&mut bitmap, 9), Some(false));
        assert_eq!(set(&mut bitmap, 9), Some(true));
        assert_eq!(clear(&mut bitmap, 9), Some(true));
        assert_eq!(set(&mut bitmap, 16), None);
        assert_eq!(bitmap, [0, 0]);
    }
}
