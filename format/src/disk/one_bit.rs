//! Which single bit is wrong, told by a checksum.
//!
//! CRC-32C is linear: flipping a bit of a message changes its checksum by an amount that depends on the bit's distance from
//! the end of the message alone. So the difference between the stored and the computed checksum names the bit, if it is
//! one. That a damage of several bits looks like that of one is as likely as the share of differences that are taken: for a
//! block of 4 KiB, one in 130,000.

use rustc_hash::FxHashMap;

use super::crc::crc32c;
use crate::num::index;

/// The differences that single bits make, for messages up to a length.
#[derive(Clone, Debug)]
pub struct OneBit {
    /// Difference to distance from the last byte, times 8, plus the bit.
    by_difference: FxHashMap<u32, u32>,
}

/// A bit of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bit {
    /// The byte, from the start of the message.
    pub byte: usize,
    /// The bit in it, 0 for the lowest.
    pub bit: u8,
}

impl OneBit {
    /// Knows every bit of messages up to so many bytes.
    pub fn new(longest: u32) -> Self {
        let mut by_difference = FxHashMap::default();
        let mut differences: [u32; 8] = std::array::from_fn(|bit| crc32c(0, &[1u8.wrapping_shl(low(bit))]));
        for distance in 0..longest {
            for (bit, difference) in (0u32..).zip(&mut differences) {
                by_difference.insert(*difference, distance.saturating_mul(8).saturating_add(bit));
                *difference = crc32c(*difference, &[0]);
            }
        }
        Self { by_difference }
    }

    /// The bit of a message of this length whose flip explains the difference of its checksums; `None` if no single bit
    /// does.
    pub fn find(&self, length: usize, stored: u32, computed: u32) -> Option<Bit> {
        let found = *self.by_difference.get(&(stored ^ computed))?;
        let byte = length.checked_sub(1)?.checked_sub(index(found / 8))?;
        Some(Bit { byte, bit: u8::try_from(found % 8).ok()? })
    }
}

fn low(bit: usize) -> u32 {
    u32::try_from(bit).unwrap_or(0)
}

impl Bit {
    /// Flips the bit in the message.
    pub fn flip(self, message: &mut [u8]) {
        if let Some(byte) = message.get_mut(self.byte) {
            *byte ^= 1u8.wrapping_shl(self.bit.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_single_bit_is_found_and_no_pair_is_taken_for_one() {
        let table = OneBit::new(64);
        for length in [1usize, 13, 64] {
            let message: Vec<u8> = (0..length).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect();
            let stored = crc32c(0x1234_5678, &message);
            for byte in 0..length {
                for bit in 0..8 {
                    let mut damaged = message.clone();
                    Bit { byte, bit }.flip(&mut damaged);
                    let computed = crc32c(0x1234_5678, &damaged);
                    assert_eq!(table.find(length, stored, computed), Some(Bit { byte, bit }));
                    damaged[0] ^= 0x18;
                    let computed = crc32c(0x1234_5678, &damaged);
                    let found = table.find(length, stored, computed);
                    assert!(byte == 0 || found.is_none(), "{byte} {bit}: {found:?}");
                }
            }
        }
        assert_eq!(table.find(3, 1, crc32c(1, &[0; 9])), None, "a bit beyond the message is none");
    }
}
