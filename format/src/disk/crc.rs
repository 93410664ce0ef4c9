//! The three cyclic redundancy checks of the format, as raw registers without the customary inversions.
//!
//! | function | where |
//! | --- | --- |
//! | [`crc32c()`] | `metadata_csum`, JBD2 checksum v2 and v3, fast commits, undo files |
//! | [`crc16`] | group descriptors under `uninit_bg` |
//! | [`crc32_be`] | JBD2 `COMPAT_CHECKSUM` (version 1) |

/// CRC-32C (reflected polynomial 0x82f63b78) over the bytes, continuing from a register value.
///
/// The crate computes the customary form that inverts before and after; the format stores the register itself.
pub fn crc32c(register: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!register, bytes)
}

/// [`crc32c()`] over several runs of words at once, each from the same register value. The processor's instruction takes
/// three cycles but a new one can begin in each, so that lanes beside each other cost hardly more than one.
pub fn crc32c_lanes<const WORDS: usize, const LANES: usize>(
    register: u32,
    lanes: &[[u64; WORDS]; LANES],
) -> [u32; LANES] {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        return lanes::by_instruction(register, lanes);
    }
    lanes.each_ref().map(|words| words.iter().fold(register, |sum, word| crc32c(sum, &word.to_le_bytes())))
}

/// The one function that needs an instruction which not every processor of the family has.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod lanes {
    use std::arch::x86_64::_mm_crc32_u64;

    use crate::num::low32;

    pub fn by_instruction<const WORDS: usize, const LANES: usize>(
        register: u32,
        lanes: &[[u64; WORDS]; LANES],
    ) -> [u32; LANES] {
        // SAFETY: `crc32c_lanes` has asked the processor for SSE 4.2.
        unsafe { with_instruction(register, lanes) }
    }

    #[target_feature(enable = "sse4.2")]
    fn with_instruction<const WORDS: usize, const LANES: usize>(
        register: u32,
        lanes: &[[u64; WORDS]; LANES],
    ) -> [u32; LANES] {
        let mut sums = [u64::from(register); LANES];
        for at in 0..WORDS {
            for (sum, words) in sums.iter_mut().zip(lanes) {
                *sum = _mm_crc32_u64(*sum, words.get(at).copied().unwrap_or(0));
            }
        }
        sums.map(low32)
    }
}

/// CRC-16 (reflected polynomial 0xa001) over the bytes, continuing from a register value; start with 0xffff.
pub fn crc16(register: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(register, |register, byte| {
        let [low, _] = (register ^ u16::from(*byte)).to_le_bytes();
        (register >> 8) ^ table_entry(&CRC16_TABLE, low)
    })
}

/// CRC-32 (polynomial 0x04c11db7, most significant bit first) over the bytes, continuing from a register value;
/// start with `u32::MAX`.
pub fn crc32_be(register: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(register, |register, byte| {
        let [high, ..] = register.to_be_bytes();
        (register << 8) ^ table_entry(&CRC32_BE_TABLE, high ^ byte)
    })
}

#[expect(clippy::indexing_slicing, reason = "a byte cannot leave a table of 256")]
fn table_entry<T: Copy>(table: &[T; 256], byte: u8) -> T {
    table[usize::from(byte)]
}

static CRC16_TABLE: [u16; 256] = crc16_table();
static CRC32_BE_TABLE: [u32; 256] = crc32_be_table();

#[expect(
    clippy::as_conversions,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "evaluated by the compiler, where any fault is a build error"
)]
const fn crc16_table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut register = byte as u16;
        let mut bit = 0;
        while bit < 8 {
            register = if register & 1 == 1 { (register >> 1) ^ 0xa001 } else { register >> 1 };
            bit += 1;
        }
        table[byte] = register;
        byte += 1;
    }
    table
}

#[expect(
    clippy::as_conversions,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "evaluated by the compiler, where any fault is a build error"
)]
const fn crc32_be_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut register = (byte as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            register = if register >> 31 == 1 { (register << 1) ^ 0x04c1_1db7 } else { register << 1 };
            bit += 1;
        }
        table[byte] = register;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    // The published check values are over "123456789" with each algorithm's customary inversions.
    const CHECK: &[u8] = b"123456789";

    #[test]
    fn registers_match_published_check_values() {
        assert_eq!(!crc32c(u32::MAX, CHECK), 0xe306_9283);
        assert_eq!(crc16(0xffff, CHECK), 0x4b37, "CRC-16/MODBUS");
        assert_eq!(crc32_be(u32::MAX, CHECK), 0x0376_e6e7, "CRC-32/MPEG-2");
    }

    #[test]
    fn lanes_give_what_single_runs_give() {
        let lanes = [[1u64, 2, 3], [u64::MAX, 0, 7], [0x0123_4567_89ab_cdef; 3], [0; 3]];
        let singly = lanes.map(|words| crc32c(77, words.map(u64::to_le_bytes).as_flattened()));
        assert_eq!(crc32c_lanes(77, &lanes), singly);
    }

    #[test]
    fn registers_continue() {
        let (head, tail) = CHECK.split_at(4);
        assert_eq!(crc32c(crc32c(1, head), tail), crc32c(1, CHECK));
        assert_eq!(crc16(crc16(1, head), tail), crc16(1, CHECK));
        assert_eq!(crc32_be(crc32_be(1, head), tail), crc32_be(1, CHECK));
    }
}
