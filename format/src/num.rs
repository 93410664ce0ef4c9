//! Conversions between integer widths that cannot lose anything, and those that say so when they would.
//!
//! ext4kit runs where a pointer has 64 bits; the assertion below makes that a fact of the build.

const _: () = assert!(usize::BITS == 64, "ext4kit addresses images through 64-bit lengths");

/// A 32-bit count or offset as an index. Lossless.
#[expect(clippy::as_conversions, reason = "usize has 64 bits, asserted above")]
pub const fn index(value: u32) -> usize {
    value as usize
}

/// A 64-bit count or offset as an index. Lossless.
#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    reason = "usize has 64 bits, asserted above"
)]
pub const fn index64(value: u64) -> usize {
    value as usize
}

/// A length in memory as a 64-bit number. Lossless.
#[expect(clippy::as_conversions, reason = "usize has 64 bits, asserted above")]
pub const fn wide(value: usize) -> u64 {
    value as u64
}

/// The low 32 bits of a number that is stored in two halves.
#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    reason = "the high half is stored elsewhere"
)]
pub const fn low32(value: u64) -> u32 {
    value as u32
}

/// The low 16 bits of a number that is stored in two halves.
#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    reason = "the high half is stored elsewhere"
)]
pub const fn low16(value: u32) -> u16 {
    value as u16
}

/// The low 8 bits of a number that is stored in parts.
#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    reason = "the other parts are stored elsewhere"
)]
pub const fn low8(value: u32) -> u8 {
    value as u8
}

/// The high 32 bits of a 64-bit number.
pub const fn high32(value: u64) -> u32 {
    low32(value >> 32)
}

/// A 64-bit number from its two stored halves.
#[expect(clippy::as_conversions, reason = "both casts widen")]
pub const fn join32(low: u32, high: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

/// A 32-bit number from its two stored halves.
#[expect(clippy::as_conversions, reason = "both casts widen")]
pub const fn join16(low: u16, high: u16) -> u32 {
    (high as u32) << 16 | low as u32
}
