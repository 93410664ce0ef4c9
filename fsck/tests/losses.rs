//! What a repair costs is said before, and told after it: classes, paths, and the report of changed files.

mod calls;

use calls::{fsck, told};
use ext4kit_format::InodeNumber;
use ext4kit_format::store::MemoryStore;
use ext4kit_format::tree::{dir, inode};
use ext4kit_format::txn::Transaction;
use ext4kit_testkit::damage::Damage;
use ext4kit_testkit::filesystem;
use ext4kit_testkit::image::TempImage;

/// `/folder/sub/file`, as inodes of folder, sub and file.
fn nested() -> (MemoryStore, [InodeNumber; 3]) {
    let parameters = filesystem::parameters(8192, 1024, "");
    let (store, mut overlay) = filesystem::filesystem(&parameters);
    let mut numbers = Vec::new();
    let mut parent = InodeNumber::ROOT;
    for name in ["folder", "sub"] {
        let mut made = filesystem::fresh(&mut overlay, 0o040_755);
        dir::create(&mut overlay, &mut made, parent).unwrap();
        inode::write(&mut overlay, &made).unwrap();
        let mut above = inode::read(&overlay, parent).unwrap();
        dir::insert(&mut overlay, &mut above, name.as_bytes(), made.number(), FileType::DIRECTORY).unwrap();
        above.set_links(above.view().links() + 1);
        inode::write(&mut overlay, &above).unwrap();
        parent = made.number();
        numbers.push(parent);
    }
    let file = filesystem::fresh(&mut overlay, 0o100_644);
    inode::write(&mut overlay, &file).unwrap();
    let mut above = inode::read(&overlay, parent).unwrap();
    dir::insert(&mut overlay, &mut above, b"file", file.number(), FileType::REGULAR).unwrap();
    inode::write(&mut overlay, &above).unwrap();
    numbers.push(file.number());
    filesystem::commit_clean(&store, &mut overlay);
    (MemoryStore::clone(&store), numbers.try_into().unwrap())
}

use ext4kit_format::disk::dirent::FileType;

#[test]
fn a_file_that_is_lost_is_named_with_what_it_cost() {
    let (store, [_, _, file]) = nested();
    let damaged = Damage::to(&store).inode(file, |inode| inode.set_mode(0o170_644)).finish();
    let image = TempImage::of(&damaged).unwrap();
    let report = tempfile::NamedTempFile::new().unwrap();
    let path = report.path().to_str().unwrap();
    let (code, out, _) = fsck(&["-fn", "--report", path], &image);
    assert_eq!(code, 4);
    let wanted = format!("inode {} (/folder/sub/file): ", file.get());
    assert!(out.contains(&wanted) && out.contains("? no; loses data)"), "{out}");
    // What would be is told as well.
    let planned = std::fs::read_to_string(path).unwrap();
    let (code, out, _) = fsck(&["-fn", "--json"], &image);
    assert_eq!(code, 4);
    assert!(out.contains(r#""path":"/folder/sub/file""#) && out.contains(r#""class":"loses-data""#), "{out}");
    assert_eq!(fsck(&["-f", "--policy", "no-data-loss"], &image).0, 4);
    let (code, out, _) = fsck(&["-fy", "--report", path], &image);
    assert_eq!(code, 1, "{out}");
    let told = std::fs::read_to_string(path).unwrap();
    assert_eq!(told, planned);
    assert_eq!(told.lines().count(), 1, "{told}");
    let start = format!(r#"{{"inode":{},"before":["/folder/sub/file"],"after":[],"#, file.get());
    assert!(told.starts_with(&start), "{told}");
    assert!(told.contains(r#""lost":[{"code":3"#), "{told}");
    // Nothing changes any more.
    assert_eq!(fsck(&["-fy", "--report", path], &image).0, 0);
    assert_eq!(std::fs::read_to_string(path).unwrap(), "");
}

#[test]
fn a_file_that_moves_is_told_with_both_of_its_paths() {
    let (store, [folder, sub, file]) = nested();
    // The folder forgets the directory in it.
    let mut damage = Damage::to(&store);
    let txn = damage.transaction();
    let mut directory = inode::read(txn, folder).unwrap();
    dir::remove(txn, &mut directory, b"sub").unwrap();
    inode::write(txn, &directory).unwrap();
    assert!(txn.layout().geometry.block_size() == 1024);
    let image = TempImage::of(&damage.finish()).unwrap();
    let report = tempfile::NamedTempFile::new().unwrap();
    let (code, out, _) = fsck(&["-fy", "--report", report.path().to_str().unwrap()], &image);
    assert_eq!(code, 1, "{out}");
    assert!(!out.contains("loses data"), "{out}");
    let told = std::fs::read_to_string(report.path()).unwrap();
    let (sub, file) = (sub.get(), file.get());
    // Before the repair no name led to them.
    let after = format!(r#"{{"inode":{sub},"before":[],"after":["/lost+found/#{sub}"]"#);
    assert!(told.contains(&after), "{told}");
    assert!(
        told.contains(&format!(r#"{{"inode":{file},"before":[],"after":["/lost+found/#{sub}/file"]"#)),
        "{told}"
    );
    assert_eq!(told.lines().count(), 2);
}

#[test]
fn a_report_that_cannot_be_written_stops_the_repair() {
    let (store, [_, _, file]) = nested();
    let damaged = Damage::to(&store).inode(file, |inode| inode.set_links(9)).finish();
    let image = TempImage::of(&damaged).unwrap();
    let before = std::fs::read(image.path()).unwrap();
    let output = calls::command(&["-fy", "--report", "/nonexistent/report"], &image).output().unwrap();
    let (code, _, errors) = told(output, &image);
    assert_eq!(code, 8);
    assert!(errors.contains("/nonexistent/report: "), "{errors}");
    assert!(before == std::fs::read(image.path()).unwrap());
}
