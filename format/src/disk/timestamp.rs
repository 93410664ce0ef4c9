//! Times of inodes: 32 bits of seconds, and an extra word of nanoseconds and epoch where the inode has room.

/// A point in time. The format holds 1901-12-13 to 2446-05-10 in long inodes, and up to 2038-01-19 in short ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 UTC, negative before.
    pub seconds: i64,
    /// Nanoseconds within the second, 0 to 999,999,999.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// The earliest time that an inode can hold.
    pub const EARLIEST: i64 = -0x8000_0000;
    /// The latest second that an inode without extra words can hold.
    pub const LATEST_SHORT: i64 = 0x7fff_ffff;
    /// The latest second that an inode with extra words can hold.
    pub const LATEST_LONG: i64 = 0x3_7fff_ffff;

    /// The time of a stored pair. Seconds are signed 32 bits; the low two bits of the extra word are the epoch, which
    /// adds multiples of 2³² seconds, and the other 30 are nanoseconds. Nanoseconds out of range are kept as they are
    /// up to what 30 bits hold.
    pub fn decode(seconds: u32, extra: Option<u32>) -> Self {
        let base = i64::from(seconds.cast_signed());
        match extra {
            None => Self { seconds: base, nanoseconds: 0 },
            Some(extra) => {
                Self { seconds: base.wrapping_add(i64::from(extra & 3) << 32), nanoseconds: extra >> 2 }
            }
        }
    }

    /// The stored pair of this time, brought to the nearest time that fits. Without an extra word, nanoseconds are
    /// dropped.
    pub fn encode(self, has_extra: bool) -> (u32, u32) {
        let latest = if has_extra { Self::LATEST_LONG } else { Self::LATEST_SHORT };
        let seconds = self.seconds.clamp(Self::EARLIEST, latest);
        let low = crate::num::low32(seconds.cast_unsigned());
        if !has_extra {
            return (low, 0);
        }
        let above = seconds.wrapping_sub(i64::from(low.cast_signed()));
        let epoch = crate::num::high32(above.cast_unsigned()) & 3;
        (low, (self.nanoseconds.min(999_999_999) << 2) | epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_times() {
        // 2040-01-01 and 1960-01-01, as the kernel stores them.
        let later = Timestamp { seconds: 2_208_988_800, nanoseconds: 123_456_789 };
        assert_eq!(later.encode(true), (0x83aa_7e80, (123_456_789 << 2) | 1));
        let earlier = Timestamp { seconds: -315_619_200, nanoseconds: 0 };
        assert_eq!(earlier.encode(true), (0xed30_0880, 0));
        assert_eq!(later.encode(false).0, 0x7fff_ffff);
    }

    proptest! {
        #[test]
        fn every_time_in_range_survives(seconds in Timestamp::EARLIEST..=Timestamp::LATEST_LONG, nanoseconds in 0u32..1_000_000_000) {
            let time = Timestamp { seconds, nanoseconds };
            let (low, extra) = time.encode(true);
            prop_assert_eq!(Timestamp::decode(low, Some(extra)), time);
        }
    }
}
