//! The feature words of a journal's superblock. Unknown bits are kept.

use bitflags::bitflags;

bitflags! {
    /// `s_feature_compat`: a reader that does not know a bit may still use the journal.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CompatFeatures: u32 {
        /// Commit blocks carry a CRC-32 over the transaction's descriptors and logged blocks (checksum version 1).
        const CHECKSUM = 0x1;
        // Bits without a name survive too.
        const _ = !0;
    }
}

bitflags! {
    /// `s_feature_incompat`: a reader that does not know a bit must not touch the journal.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct IncompatFeatures: u32 {
        /// Revoke blocks may exist. Often unset although they do, so nothing may depend on it.
        const REVOKE = 0x1;
        /// Tags and revoke records hold 64-bit block numbers.
        const WIDE = 0x2;
        /// A commit block may be written before the blocks it covers are durable.
        const ASYNC_COMMIT = 0x4;
        /// Every metadata block of the log carries a CRC-32C; tags hold 16 bits of their block's.
        const CHECKSUM_V2 = 0x8;
        /// As version 2, with larger tags that hold the whole checksum.
        const CHECKSUM_V3 = 0x10;
        /// The log's last blocks are an area for fast commits.
        const FAST_COMMIT = 0x20;
        // Bits without a name survive too.
        const _ = !0;
    }
}

impl CompatFeatures {
    /// Every bit that has a meaning here.
    pub const KNOWN: Self = Self::CHECKSUM;
}

impl IncompatFeatures {
    /// Every bit that has a meaning here.
    pub const KNOWN: Self = Self::REVOKE
        .union(Self::WIDE)
        .union(Self::ASYNC_COMMIT)
        .union(Self::CHECKSUM_V2)
        .union(Self::CHECKSUM_V3)
        .union(Self::FAST_COMMIT);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_bits_are_kept_and_told_apart() {
        let features = IncompatFeatures::from_bits_retain(0x8000_0012);
        assert!(features.contains(IncompatFeatures::WIDE));
        assert_eq!(features.bits(), 0x8000_0012);
        assert_eq!((features - IncompatFeatures::KNOWN).bits(), 0x8000_0000);
        assert_eq!(IncompatFeatures::KNOWN.bits(), 0x3f);
    }
}
