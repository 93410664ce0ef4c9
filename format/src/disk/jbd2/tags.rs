//! Descriptor blocks: a list of tags, one for each logged block that follows.
//!
//! | log | bytes | layout |
//! | --- | --- | --- |
//! | no CRC-32C | 8 | block, 16 bits of checksum (0), 16 bits of flags |
//! | no CRC-32C, 64-bit | 12 | the same, high half of the block |
//! | version 2 | 10 | block, 16 bits of checksum, 16 bits of flags, 2 unused |
//! | version 2, 64-bit | 14 | block, checksum, flags, high half, 2 unused |
//! | version 3 | 16 | block, 32 bits of flags, high half, 32 bits of checksum |
//!
//! A tag without [`TagFlags::SAME_UUID`] is followed by 16 bytes of UUID, which nothing uses.

use std::mem::size_of;

use bitflags::bitflags;
use zerocopy::IntoBytes;

use super::format::{ChecksumVersion, LogFormat};
use super::header::{BlockHeader, BlockType};
use crate::bytes;
use crate::ids::TransactionId;
use crate::num::{high32, index, join32, low16, low32};

bitflags! {
    /// Flags of a tag. Unknown bits are kept.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct TagFlags: u32 {
        /// The block began with the journal's magic number, which was zeroed in the log.
        const ESCAPE = 0x1;
        /// No UUID follows.
        const SAME_UUID = 0x2;
        /// Of no meaning to ext4.
        const DELETED = 0x4;
        /// The last tag of its descriptor.
        const LAST = 0x8;
        // Bits without a name survive too.
        const _ = !0;
    }
}

/// One tag: which block of the filesystem the next logged block is a copy of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The block of the filesystem, not of the log.
    pub block: u64,
    /// What to know about the copy.
    pub flags: TagFlags,
    /// Checksum of the copy: 16 bits in version 2, 32 in version 3. Other logs leave it 0 and it means nothing.
    pub checksum: u32,
}

/// Bytes of the UUID that may follow a tag.
const UUID_SIZE: usize = 16;

/// Walks the tags of a descriptor block.
///
/// The list ends with a tag that is marked as the last, or where the block has no room for another.
#[derive(Clone, Debug)]
pub struct Tags<'a> {
    format: LogFormat,
    block: &'a [u8],
    at: usize,
    ended: bool,
}

impl<'a> Tags<'a> {
    /// The tags of a descriptor block. Its checksum is verified apart from this ([`LogFormat::verify_tail`]).
    pub fn new(format: LogFormat, block: &'a [u8]) -> Self {
        Self { format, block, at: size_of::<BlockHeader>(), ended: false }
    }

    /// Whether the tag that came last was marked as such. Every known writer marks it; a list that ends
    /// without the mark and without a checksum to vouch for it was cut.
    pub fn ended_with_last(&self) -> bool {
        self.ended
    }

    fn parse(&self) -> Option<Tag> {
        let bytes = bytes::span(self.block, self.at, self.format.tag_size())?;
        let low = bytes::be32(bytes, 0)?;
        let wide = self.format.wide;
        let high = |at| if wide { bytes::be32(bytes, at) } else { Some(0) };
        if self.format.checksums == ChecksumVersion::V3 {
            let flags = TagFlags::from_bits_retain(bytes::be32(bytes, 4)?);
            return Some(Tag { block: join32(low, high(8)?), flags, checksum: bytes::be32(bytes, 12)? });
        }
        let checksum = bytes::be16(bytes, 4)?;
        let flags = TagFlags::from_bits_retain(u32::from(bytes::be16(bytes, 6)?));
        Some(Tag { block: join32(low, high(8)?), flags, checksum: u32::from(checksum) })
    }
}

impl Iterator for Tags<'_> {
    type Item = Tag;

    fn next(&mut self) -> Option<Tag> {
        let usable = self.block.len().saturating_sub(self.format.tail_size());
        let end = self.at.checked_add(self.format.tag_size())?;
        if self.ended || end > usable {
            return None;
        }
        let tag = self.parse()?;
        let uuid = if tag.flags.contains(TagFlags::SAME_UUID) { 0 } else { UUID_SIZE };
        self.at = end.checked_add(uuid)?;
        self.ended = tag.flags.contains(TagFlags::LAST);
        Some(tag)
    }
}

/// Builds one descriptor block.
///
/// Marks for the last tag and for the UUID are set here, whatever the given flags say about them.
#[derive(Clone, Debug)]
pub struct DescriptorWriter {
    format: LogFormat,
    uuid: [u8; UUID_SIZE],
    block: Vec<u8>,
    used: usize,
    last_tag: Option<usize>,
}

impl DescriptorWriter {
    /// An empty descriptor of a transaction. The UUID, which follows the first tag, is the journal's.
    pub fn new(format: LogFormat, sequence: TransactionId, uuid: [u8; UUID_SIZE]) -> Self {
        let mut block = vec![0; index(format.block_size)];
        let header = BlockHeader::new(BlockType::DESCRIPTOR, sequence);
        if let Some(head) = bytes::span_mut(&mut block, 0, size_of::<BlockHeader>()) {
            head.copy_from_slice(header.as_bytes());
        }
        Self { format, uuid, block, used: size_of::<BlockHeader>(), last_tag: None }
    }

    /// Whether another tag fits. As the kernel does, room for a UUID is always kept.
    pub fn has_room(&self) -> bool {
        let parts = [self.format.tag_size(), UUID_SIZE, self.format.tail_size()];
        let end = parts.into_iter().try_fold(self.used, usize::checked_add);
        end.is_some_and(|end| end <= self.block.len())
    }

    /// Adds a tag; `false` if the descriptor is full or the block's number does not fit the log's tags.
    #[must_use]
    pub fn push(&mut self, tag: Tag) -> bool {
        if !self.has_room() || (high32(tag.block) != 0 && !self.format.wide) {
            return false;
        }
        let first = self.last_tag.is_none();
        let mut flags = tag.flags.difference(TagFlags::LAST);
        flags.set(TagFlags::SAME_UUID, !first);
        let at = self.used;
        if self.store(at, Tag { flags, ..tag }).is_none() {
            return false;
        }
        self.last_tag = Some(at);
        self.used = at.saturating_add(self.format.tag_size());
        if first {
            if let Some(place) = bytes::span_mut(&mut self.block, self.used, UUID_SIZE) {
                place.copy_from_slice(&self.uuid);
            }
            self.used = self.used.saturating_add(UUID_SIZE);
        }
        true
    }

    fn store(&mut self, at: usize, tag: Tag) -> Option<()> {
        let place = bytes::span_mut(&mut self.block, at, self.format.tag_size())?;
        bytes::put_be32(place, 0, low32(tag.block))?;
        if self.format.checksums == ChecksumVersion::V3 {
            bytes::put_be32(place, 4, tag.flags.bits())?;
            bytes::put_be32(place, 8, high32(tag.block))?;
            return bytes::put_be32(place, 12, tag.checksum);
        }
        bytes::put_be16(place, 4, low16(tag.checksum))?;
        bytes::put_be16(place, 6, low16(tag.flags.bits()))?;
        if self.format.wide { bytes::put_be32(place, 8, high32(tag.block)) } else { Some(()) }
    }

    /// The finished block: its last tag marked, its checksum in place. `None` if no tag was added.
    pub fn finish(mut self) -> Option<Vec<u8>> {
        // The low 16 bits of the flags end at byte 8 of a tag in every format.
        let flags_at = self.last_tag?.checked_add(6)?;
        let flags = TagFlags::from_bits_retain(u32::from(bytes::be16(&self.block, flags_at)?));
        bytes::put_be16(&mut self.block, flags_at, low16((flags | TagFlags::LAST).bits()))?;
        self.format.seal_tail(&mut self.block);
        Some(self.block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSIONS: [ChecksumVersion; 4] =
        [ChecksumVersion::None, ChecksumVersion::V1, ChecksumVersion::V2, ChecksumVersion::V3];

    fn format(checksums: ChecksumVersion, wide: bool) -> LogFormat {
        LogFormat { block_size: 1024, checksums, wide, seed: 1 }
    }

    fn formats() -> impl Iterator<Item = LogFormat> {
        VERSIONS.into_iter().flat_map(|version| [false, true].map(|wide| format(version, wide)))
    }

    #[test]
    fn full_descriptors_come_back_in_every_format() {
        for format in formats() {
            let mut writer = DescriptorWriter::new(format, TransactionId(4), [0xaa; 16]);
            let mut pushed = Vec::new();
            loop {
                let number =
                    u64::try_from(pushed.len()).unwrap() + if format.wide { 0x5_0000_0000 } else { 9 };
                let flags = if pushed.len() % 3 == 1 { TagFlags::ESCAPE } else { TagFlags::empty() };
                let tag = Tag { block: number, flags, checksum: 0x1234 };
                if !writer.push(tag) {
                    break;
                }
                pushed.push(tag);
            }
            let block = writer.finish().unwrap();
            assert_eq!(format.verify_tail(&block), Ok(()));
            let mut tags = Tags::new(format, &block);
            let found: Vec<Tag> = tags.by_ref().collect();
            assert!(tags.ended_with_last());
            assert_eq!(found.len(), pushed.len());
            for (at, (found, wanted)) in found.iter().zip(&pushed).enumerate() {
                assert_eq!(found.block, wanted.block);
                assert_eq!(found.checksum, wanted.checksum);
                assert_eq!(found.flags.contains(TagFlags::ESCAPE), wanted.flags.contains(TagFlags::ESCAPE));
                assert_eq!(found.flags.contains(TagFlags::SAME_UUID), at > 0);
                assert_eq!(found.flags.contains(TagFlags::LAST), at + 1 == pushed.len());
            }
        }
    }

    #[test]
    fn known_bytes_of_a_version_three_tag() {
        let format = format(ChecksumVersion::V3, true);
        let mut writer = DescriptorWriter::new(format, TransactionId(4), [0xaa; 16]);
        assert!(writer.push(Tag { block: 0x1_0000_0002, flags: TagFlags::ESCAPE, checksum: 0x0a0b_0c0d }));
        let block = writer.finish().unwrap();
        let wanted = [0, 0, 0, 2, 0, 0, 0, 9, 0, 0, 0, 1, 0xa, 0xb, 0xc, 0xd];
        assert_eq!(block[12..28], wanted);
        assert_eq!(block[28..44], [0xaa; 16]);
    }

    #[test]
    fn a_narrow_log_ignores_the_high_half_of_a_version_three_tag() {
        let mut block = vec![0; 1024];
        block[12..28].copy_from_slice(&[0, 0, 0, 2, 0, 0, 0, 10, 0, 0, 0, 1, 0, 0, 0, 0]);
        let tags: Vec<Tag> = Tags::new(format(ChecksumVersion::V3, false), &block).collect();
        assert_eq!(tags.len(), 1);
        assert_eq!(tags[0].block, 2);
    }

    #[test]
    fn a_list_without_an_end_stops_at_the_end_of_the_block() {
        for format in formats() {
            let block = vec![0xff - 8; 1024]; // every flag but LAST
            let mut tags = Tags::new(format, &block);
            let room = 1024 - 12 - format.tail_size();
            assert_eq!(tags.by_ref().count(), room / format.tag_size());
            assert!(!tags.ended_with_last());
            assert_eq!(Tags::new(format, &[]).count(), 0);
        }
    }

    #[test]
    fn an_empty_descriptor_is_none() {
        let format = format(ChecksumVersion::V2, true);
        assert_eq!(DescriptorWriter::new(format, TransactionId(1), [0; 16]).finish(), None);
    }
}
