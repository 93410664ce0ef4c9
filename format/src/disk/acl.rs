//! POSIX access control lists: the form on disk, the entries, and the form of the system calls.
//!
//! Both forms begin with a version and list entries of tag, permissions and id. On disk (version 1) only named users
//! and groups have an id; in the system calls' `system.posix_acl_*` values (version 2) each entry has one. Decoding checks
//! what the form needs; whether the entries make a whole list is a question of its own, [`check`].

use crate::bytes::{le16, le32};
use crate::error::Defect;

/// Version of the form on disk.
pub const DISK_VERSION: u32 = 1;
/// Version of the system calls' form.
pub const SYSCALL_VERSION: u32 = 2;

/// The id of entries that name nobody, in the system calls' form.
const NO_ID: u32 = u32::MAX;
const HEADER: usize = 4;
const SHORT: usize = 4;
const LONG: usize = 8;
const ALL_PERMISSIONS: u16 = 7;

/// Whom an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// The file's owner (tag 0x01).
    Owner,
    /// A user by id (tag 0x02).
    User(u32),
    /// The file's group (tag 0x04).
    OwningGroup,
    /// A group by id (tag 0x08).
    Group(u32),
    /// The most that all named entries and the file's group get (tag 0x10).
    Mask,
    /// Everybody else (tag 0x20).
    Others,
}

impl Subject {
    fn tag_and_id(self) -> (u16, Option<u32>) {
        match self {
            Self::Owner => (0x01, None),
            Self::User(id) => (0x02, Some(id)),
            Self::OwningGroup => (0x04, None),
            Self::Group(id) => (0x08, Some(id)),
            Self::Mask => (0x10, None),
            Self::Others => (0x20, None),
        }
    }

    /// Whether entries with this tag have an id on disk; `None` for a tag that does not exist.
    fn tag_has_id(tag: u16) -> Option<bool> {
        match tag {
            0x02 | 0x08 => Some(true),
            0x01 | 0x04 | 0x10 | 0x20 => Some(false),
            _ => None,
        }
    }

    fn from_tag(tag: u16, id: u32) -> Option<Self> {
        Some(match tag {
            0x01 => Self::Owner,
            0x02 => Self::User(id),
            0x04 => Self::OwningGroup,
            0x08 => Self::Group(id),
            0x10 => Self::Mask,
            0x20 => Self::Others,
            _ => return None,
        })
    }
}

/// An entry of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AclEntry {
    /// Whom it is about.
    pub subject: Subject,
    /// Read 4, write 2, execute 1.
    pub permissions: u16,
}

/// The entries of a value as it is on disk.
pub fn decode_disk(value: &[u8]) -> Result<Vec<AclEntry>, Defect> {
    check_version(value, DISK_VERSION)?;
    decode(value, |tag| if Subject::tag_has_id(tag) == Some(true) { LONG } else { SHORT })
}

/// The entries of a value as the system calls have it.
pub fn decode_syscall(value: &[u8]) -> Result<Vec<AclEntry>, Defect> {
    check_version(value, SYSCALL_VERSION)?;
    decode(value, |_| LONG)
}

/// The value of entries as it is on disk.
pub fn encode_disk(entries: &[AclEntry]) -> Vec<u8> {
    encode(DISK_VERSION, entries, |id| id)
}

/// The value of entries as the system calls have it.
pub fn encode_syscall(entries: &[AclEntry]) -> Vec<u8> {
    encode(SYSCALL_VERSION, entries, |id| Some(id.unwrap_or(NO_ID)))
}

fn check_version(value: &[u8], wanted: u32) -> Result<(), Defect> {
    let version = le32(value, 0).ok_or(CUT)?;
    Defect::check_range("a_version", u64::from(version), u64::from(wanted), u64::from(wanted))
}

const CUT: Defect = Defect::Truncated { what: "access control list" };

fn decode(value: &[u8], length_of: fn(u16) -> usize) -> Result<Vec<AclEntry>, Defect> {
    let mut entries = Vec::new();
    let mut rest = value.get(HEADER..).ok_or(CUT)?;
    while !rest.is_empty() {
        let tag = le16(rest, 0).ok_or(CUT)?;
        let permissions = le16(rest, 2).ok_or(CUT)?;
        Defect::check_range("e_perm", u64::from(permissions), 0, u64::from(ALL_PERMISSIONS))?;
        let length = length_of(tag);
        let id = if length == LONG { le32(rest, SHORT).ok_or(CUT)? } else { NO_ID };
        let subject = Subject::from_tag(tag, id)
            .ok_or_else(|| Defect::Contradiction(format!("e_tag is {tag:#x}, which no entry has")))?;
        entries.push(AclEntry { subject, permissions });
        rest = rest.get(length..).ok_or(CUT)?;
    }
    Ok(entries)
}

fn encode(version: u32, entries: &[AclEntry], stored_id: fn(Option<u32>) -> Option<u32>) -> Vec<u8> {
    let mut value = version.to_le_bytes().to_vec();
    for entry in entries {
        let (tag, id) = entry.subject.tag_and_id();
        value.extend(tag.to_le_bytes());
        value.extend(entry.permissions.to_le_bytes());
        value.extend(stored_id(id).map(u32::to_le_bytes).into_iter().flatten());
    }
    value
}

/// Whether the entries make a whole list: owner, named users, owning group, named groups, mask, others, in this order;
/// each unnamed one once, the mask only needed where something is named; no one named twice.
pub fn check(entries: &[AclEntry]) -> Result<(), Defect> {
    let wrong = |text: &str| Err(Defect::Contradiction(format!("access control list: {text}")));
    let mut seen = std::collections::HashSet::new();
    let mut before = 0;
    for (position, entry) in entries.iter().enumerate() {
        let (tag, _) = entry.subject.tag_and_id();
        if tag < before {
            return wrong(&format!("entry {position} is out of order"));
        }
        if !seen.insert(entry.subject) {
            return wrong(&format!("entry {position} is there twice"));
        }
        before = tag;
    }
    for needed in [Subject::Owner, Subject::OwningGroup, Subject::Others] {
        if !seen.contains(&needed) {
            return wrong("owner, owning group or others is missing");
        }
    }
    let named = entries.iter().any(|entry| entry.subject.tag_and_id().1.is_some());
    if named && !seen.contains(&Subject::Mask) {
        wrong("somebody is named, but there is no mask")
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list() -> Vec<AclEntry> {
        let entry = |subject, permissions| AclEntry { subject, permissions };
        vec![
            entry(Subject::Owner, 6),
            entry(Subject::User(1000), 7),
            entry(Subject::OwningGroup, 4),
            entry(Subject::Group(2000), 5),
            entry(Subject::Mask, 7),
            entry(Subject::Others, 0),
        ]
    }

    // The same list as Linux takes it in setxattr, and as mke2fs -d of e2fsprogs 1.47.0 stored it.
    #[rustfmt::skip]
    const SYSCALL: &[u8] = &[
        2, 0, 0, 0,
        1, 0, 6, 0, 255, 255, 255, 255,  2, 0, 7, 0, 0xe8, 3, 0, 0,  4, 0, 4, 0, 255, 255, 255, 255,
        8, 0, 5, 0, 0xd0, 7, 0, 0,  16, 0, 7, 0, 255, 255, 255, 255,  32, 0, 0, 0, 255, 255, 255, 255,
    ];
    #[rustfmt::skip]
    const DISK: &[u8] = &[
        1, 0, 0, 0,
        1, 0, 6, 0,  2, 0, 7, 0, 0xe8, 3, 0, 0,  4, 0, 4, 0,
        8, 0, 5, 0, 0xd0, 7, 0, 0,  16, 0, 7, 0,  32, 0, 0, 0,
    ];

    #[test]
    fn both_forms_hold_the_same_list() {
        assert_eq!(decode_syscall(SYSCALL).unwrap(), list());
        assert_eq!(decode_disk(DISK).unwrap(), list());
        assert_eq!(encode_disk(&list()), DISK);
        assert_eq!(encode_syscall(&list()), SYSCALL);
        assert_eq!(check(&list()), Ok(()));
    }

    #[test]
    fn bad_values_are_refused() {
        assert!(decode_disk(SYSCALL).is_err() && decode_syscall(DISK).is_err());
        for cut in [0, 3, 5, 6, 11, 13, 15] {
            assert_eq!(decode_disk(&DISK[..cut]), Err(CUT), "{cut}");
        }
        let mut bad = DISK.to_vec();
        bad[4] = 3;
        assert!(matches!(decode_disk(&bad), Err(Defect::Contradiction(_))));
        bad[4] = 1;
        bad[6] = 8;
        assert_eq!(decode_disk(&bad), Err(Defect::Range { field: "e_perm", value: 8, least: 0, most: 7 }));
    }

    #[test]
    fn lists_must_be_whole() {
        for missing in 0..list().len() {
            let mut entries = list();
            entries.remove(missing);
            // Without one of two named entries the list is still whole.
            assert_eq!(check(&entries).is_ok(), matches!(missing, 1 | 3), "{missing}");
        }
        let mut swapped = list();
        swapped.swap(1, 2);
        assert!(check(&swapped).is_err());
        let mut twice = list();
        twice.insert(1, twice[1]);
        assert!(check(&twice).is_err());
    }

    proptest! {
        #[test]
        fn what_decodes_encodes_to_the_same(mut value in prop::collection::vec(any::<u8>(), 0..60)) {
            for (at, byte) in value.iter_mut().enumerate() {
                *byte = match at % 4 { 0 => 1 << (*byte % 6), 2 => *byte % 8, _ => 0 };
            }
            if let Some(version) = value.first_mut() { *version = 1; }
            if value.len() > 2 { value[2] = 0; }
            if let Ok(entries) = decode_disk(&value) {
                prop_assert_eq!(encode_disk(&entries), value);
                prop_assert_eq!(decode_syscall(&encode_syscall(&entries)), Ok(entries));
            }
        }
    }
}
