//! A small filesystem in memory, and commands run on it.

use std::sync::Arc;

use ext4kit_format::InodeNumber;
use ext4kit_format::create::{Identity, InodeCount, Parameters, Plan, create_filesystem, write_backups};
use ext4kit_format::disk::features::{Feature, Features};
use ext4kit_format::disk::inode::Timestamp;
use ext4kit_format::image::{Image, OpenOptions};
use ext4kit_format::store::{MemoryStore, Store};
use ext4kit_format::tree::namespace::{self, NewInode, NewKind};
use ext4kit_format::tree::{file, inode};
use ext4kit_format::txn::{DataPolicy, Overlay, OverlayOptions, commit_new};
use jiff::tz::TimeZone;

use crate::run::{Done, Runner};
use crate::session::{Open, Session};

/// 2023-11-14 22:13:20, 7 ns later.
pub const TIME: Timestamp = Timestamp { seconds: 1_700_000_000, nanoseconds: 7 };

fn parameters(features: &[&str]) -> Parameters {
    let mut set = Features::default();
    for name in features {
        set.set(Feature::from_name(name).unwrap(), true);
    }
    Parameters {
        inodes: InodeCount::AtLeast(64),
        flex_groups: 1,
        identity: Identity { uuid: [0x11; 16], hash_seed: [0x22; 16], ..Identity::default() },
        time: 1_700_000_000,
        target_is_zero: true,
        lazy_tables: false,
        ..Parameters::new(1024, 1024, set)
    }
}

/// The features of the small filesystem with everything checksummed.
pub const CHECKSUMMED: &[&str] = &[
    "ext_attr",
    "dir_index",
    "filetype",
    "extent",
    "sparse_super",
    "large_file",
    "dir_nlink",
    "extra_isize",
    "metadata_csum",
];
/// Those of one without checksums, with block maps.
pub const PLAIN: &[&str] = &["ext_attr", "filetype", "sparse_super", "large_file"];

fn new(permissions: u16) -> NewInode {
    NewInode { permissions, uid: 1000, gid: 100, time: TIME, generation: 9 }
}

/// A filesystem with a file of each kind, its store, and an overlay whose changes can be committed by [`commit`].
pub fn filesystem(features: &[&str]) -> (Arc<MemoryStore>, Overlay) {
    let parameters = parameters(features);
    let plan = Plan::new(&parameters).unwrap();
    let store = Arc::new(MemoryStore::new(1 << 20));
    let options = OverlayOptions { data: DataPolicy::WriteThrough, ..OverlayOptions::default() };
    let mut txn =
        create_filesystem(Arc::clone(&store) as Arc<dyn Store>, &plan, &parameters, options).unwrap();
    let mut root = inode::read(&txn, InodeNumber::ROOT).unwrap();
    let mut folder =
        namespace::create(&mut txn, &mut root, b"folder", NewKind::Directory, new(0o750)).unwrap();
    let mut hello = namespace::create(&mut txn, &mut folder, b"hello", NewKind::Regular, new(0o644)).unwrap();
    file::write(&mut txn, &mut hello, 0, b"hello\n").unwrap();
    file::write(&mut txn, &mut hello, 5000, b"far").unwrap();
    inode::write(&mut txn, &hello).unwrap();
    namespace::create(&mut txn, &mut root, b"link", NewKind::Symlink(b"folder/hello"), new(0o777)).unwrap();
    namespace::create(&mut txn, &mut root, b"up", NewKind::Symlink(b"/folder"), new(0o777)).unwrap();
    namespace::create(&mut txn, &mut root, b"null", NewKind::CharacterDevice(1, 3), new(0o666)).unwrap();
    namespace::create(&mut txn, &mut root, b"disk", NewKind::BlockDevice(259, 70_000), new(0o660)).unwrap();
    (store, txn)
}

/// Writes what an overlay holds.
pub fn commit(txn: &mut Overlay) {
    write_backups(txn).unwrap();
    commit_new(txn).unwrap();
}

/// A runner over a store, in UTC.
pub fn runner(store: Arc<dyn Store>, verify: bool, json: bool) -> Option<Runner> {
    let image = Image::open_with(store, OpenOptions { verify, ..OpenOptions::default() }).ok()?;
    let open = Open::new("image".to_owned(), image, verify, true);
    let session = Session { open: Some(open), zone: TimeZone::UTC, done: false };
    Some(Runner { session, json, worst: Done::Well })
}

/// What a line prints, and what became of it.
pub fn ask(runner: &mut Runner, line: &str) -> (Done, String) {
    let mut out = Vec::new();
    let done = runner.line_to(line.as_bytes(), &mut out, &mut std::io::sink());
    (done, String::from_utf8_lossy(&out).into_owned())
}

/// What a line prints that has to succeed.
pub fn text(runner: &mut Runner, line: &str) -> String {
    let (done, text) = ask(runner, line);
    assert_eq!(done, Done::Well, "{line}: {text}");
    text
}
