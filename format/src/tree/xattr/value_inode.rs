//! Values in inodes of their own (feature `ea_inode`), and the count of entries that name each.
//!
//! Such an inode has the flag `EA_INODE`, the value as its contents, the hash of the value in `i_atime`, and its
//! references as `i_ctime << 32 | i_version_lo`. Older ones, of Lustre, have no count: `i_mtime` is the owner's
//! number and `i_generation` the owner's; they are freed with their only entry, and nobody is charged for them.

use std::collections::BTreeMap;

use super::Change;
use super::places::{Places, is, named_values};
use crate::disk::features::Incompat;
use crate::disk::inode::{EXTRA_SIZE, FileKind, Inode, InodeFlags};
use crate::disk::xattr::{Attribute, Entry, NameIndex, NewValue, Value, hash_with_inode, inode_value_hash};
use crate::error::{Defect, Error, Place, Result};
use crate::ids::{BlockRun, GroupNumber, InodeNumber, LogicalBlock};
use crate::num::{high32, index, index64, join32, low32, wide};
use crate::tree::map::{self, State};
use crate::tree::{group, inode};
use crate::txn::{BlockKind, BlockRequest, Transaction, create};

/// What an entry says of a value in an inode of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub inode: InodeNumber,
    pub size: u32,
    pub entry_hash: u32,
}

/// Who holds a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// An inode that counts its references.
    Counted,
    /// An inode of Lustre, which belongs to one entry.
    Lustre,
}

/// The inode that an entry names, checked to be what the entry says.
fn holder(txn: &dyn Transaction, owner: &Inode, name: &[u8], named: Named) -> Result<(Inode, Holder)> {
    let at = |defect: Defect| defect.at(Place::Inode(named.inode));
    if named.inode == owner.number() {
        return Err(at(Defect::Contradiction(
            "it is said to hold the value of an attribute of its own".to_owned(),
        )));
    }
    let found = inode::read(txn, named.inode)?;
    let view = found.view();
    if !view.flags().contains(InodeFlags::EA_INODE) {
        let text = "an attribute's value is said to be here, but the flag for that is missing";
        return Err(at(Defect::Contradiction(text.to_owned())));
    }
    Defect::check_range("i_size", view.size(), named.size.into(), named.size.into()).map_err(at)?;
    let value = Value::Inode { inode: named.inode, size: named.size };
    let entry = Entry { offset: 0, index: NameIndex::default(), name, value, hash: named.entry_hash };
    if entry.hash_matches(view.head().i_atime.get()) {
        return Ok((found, Holder::Counted));
    }
    let of_owner =
        view.head().i_mtime.get() == owner.number().get() && view.generation() == owner.view().generation();
    if of_owner {
        return Ok((found, Holder::Lustre));
    }
    let text = format!("the hash in inode {} does not fit this value's", owner.number());
    Err(at(Defect::Contradiction(text)))
}

/// A value, its hash checked.
pub(super) fn read(txn: &dyn Transaction, owner: &Inode, name: &[u8], named: Named) -> Result<Vec<u8>> {
    let (found, holder) = holder(txn, owner, name, named)?;
    let value = contents(txn, &found)?;
    let stored = found.view().head().i_atime.get();
    let computed = inode_value_hash(seed(txn)?, &value);
    if holder == Holder::Counted && stored != computed {
        return Err(Defect::Checksum { stored, computed }.at(Place::Inode(named.inode)));
    }
    Ok(value)
}

/// The contents of a value's inode. Its size was checked against the entry's, which is bounded by the format.
fn contents(txn: &dyn Transaction, found: &Inode) -> Result<Vec<u8>> {
    let block_bits = txn.layout().geometry.block_bits();
    let size = index64(found.view().size());
    let mut value = Vec::with_capacity(size);
    while value.len() < size {
        let logical = LogicalBlock(low32(wide(value.len()) >> block_bits));
        let State::Written(at) = map::lookup(txn, found, logical)?.state else {
            let text = format!("block {logical} of an attribute's value is missing");
            return Err(Defect::Contradiction(text).at(Place::Inode(found.number())));
        };
        let block = txn.read(at, BlockKind::Contents(found.number()))?;
        let part = size.saturating_sub(value.len()).min(block.len());
        value.extend_from_slice(block.get(..part).unwrap_or_default());
    }
    Ok(value)
}

/// The seed of value hashes, which exist without `metadata_csum` as well.
fn seed(txn: &dyn Transaction) -> Result<u32> {
    Ok(group::read_superblock(txn)?.checksum_seed())
}

/// Values that a change puts into inodes of their own.
#[derive(Debug, Default)]
pub(super) struct NewValues {
    noted: Vec<(NameIndex, Vec<u8>, Vec<u8>)>,
    made: Vec<InodeNumber>,
}

impl NewValues {
    pub fn note(&mut self, index: NameIndex, name: &[u8], value: &[u8]) {
        self.noted.push((index, name.to_vec(), value.to_vec()));
    }

    pub fn forget(&mut self, index: NameIndex, name: &[u8]) {
        self.noted.retain(|(known, of, _)| (*known, of.as_slice()) != (index, name));
    }

    /// Makes the inodes, or finds equal ones, and names them in their entries. Nothing refers to a new one yet.
    pub fn create(
        &mut self,
        txn: &mut dyn Transaction,
        owner: &Inode,
        after: &mut Places,
        change: &mut Change<'_>,
    ) -> Result<()> {
        for (index, name, value) in std::mem::take(&mut self.noted) {
            let hash = inode_value_hash(seed(txn)?, &value);
            let holder = match find_equal(txn, hash, &value, change)? {
                Some(holder) => holder,
                None => make(txn, owner, &value, hash, change)?,
            };
            self.made.push(holder);
            let entry = after.area.iter_mut().chain(&mut after.block).find(|entry| is(entry, index, &name));
            if let Some(Attribute { value: NewValue::Inode { inode, entry_hash, .. }, .. }) = entry {
                *inode = holder;
                *entry_hash = hash_with_inode(&name, hash);
            }
        }
        Ok(())
    }

    /// Frees those that nothing refers to after all.
    pub fn drop_unused(self, txn: &mut dyn Transaction, change: &mut Change<'_>) -> Result<()> {
        for number in self.made {
            let made = inode::read(txn, number)?;
            if references(&made) == 0 && made.view().links() > 0 {
                free(txn, made, change)?;
            }
        }
        Ok(())
    }
}

/// An inode that holds this value already, if the caller keeps track of values.
fn find_equal(
    txn: &dyn Transaction,
    hash: u32,
    value: &[u8],
    change: &Change<'_>,
) -> Result<Option<InodeNumber>> {
    let Some(sharing) = change.sharing.as_deref() else { return Ok(None) };
    let Some(number) = sharing.value(hash, low32(wide(value.len()))) else { return Ok(None) };
    let found = inode::read(txn, number)?;
    let is_value = found.view().flags().contains(InodeFlags::EA_INODE)
        && found.view().links() > 0
        && found.view().size() == wide(value.len());
    Ok((is_value && contents(txn, &found)? == value).then_some(number))
}

/// Makes an inode that holds a value, near its owner, with no references yet.
fn make(
    txn: &mut dyn Transaction,
    owner: &Inode,
    value: &[u8],
    hash: u32,
    change: &mut Change<'_>,
) -> Result<InodeNumber> {
    let geometry = txn.layout().geometry.clone();
    let near = geometry.inode_place(owner.number()).map_or(GroupNumber(0), |(group, _)| group);
    let number = txn.allocate_inode(near, false)?;
    let mut made = Inode::fresh(number, index(geometry.inode_size()), EXTRA_SIZE);
    made.set_mode(FileKind::Regular.mode_bits() | 0o600);
    made.set_owner_ids(owner.view().uid(), owner.view().gid());
    made.set_links(1);
    made.set_generation(change.generation);
    made.set_modification_time(change.time);
    made.set_creation_time(change.time);
    made.head_mut().i_atime.set(hash);
    map::initialise(&mut made, txn.layout().features().incompat.contains(Incompat::EXTENTS))?;
    let flags = made.view().flags().union(InodeFlags::EA_INODE);
    made.set_flags(flags);
    made.set_size(wide(value.len()));
    write_contents(txn, &mut made, value)?;
    inode::write_over(txn, &made)?;
    if let Some(sharing) = change.sharing.as_deref_mut() {
        sharing.note_value(hash, low32(wide(value.len())), number);
    }
    Ok(number)
}

fn write_contents(txn: &mut dyn Transaction, made: &mut Inode, value: &[u8]) -> Result<()> {
    let geometry = txn.layout().geometry.clone();
    let mut pieces = value.chunks(geometry.block_length());
    let total = wide(pieces.len());
    let group = geometry.inode_place(made.number()).map(|(group, _)| geometry.group_start(group));
    let (mut goal, mut done) = (group.unwrap_or_default(), 0u64);
    while done < total {
        let wanted = total.saturating_sub(done);
        txn.ensure_credits(super::CREDITS)?;
        let run = txn.allocate_blocks(BlockRequest { goal, wanted, owner: made.number() })?;
        // The last cluster may be longer than the value.
        let run = BlockRun { length: run.length.min(wanted), ..run };
        map::insert(txn, made, LogicalBlock(low32(done)), run, false)?;
        for (at, piece) in run.iter().zip(pieces.by_ref()) {
            create(txn, at, BlockKind::Contents(made.number()), |bytes| {
                bytes.iter_mut().zip(piece).for_each(|(target, byte)| *target = *byte);
            })?;
        }
        goal = run.end().unwrap_or_default();
        done = done.saturating_add(run.length);
    }
    Ok(())
}

fn references(holder: &Inode) -> u64 {
    let head = holder.view().head();
    join32(head.i_version_lo.get(), head.i_ctime.get())
}

fn set_references(holder: &mut Inode, count: u64) {
    let head = holder.head_mut();
    head.i_version_lo.set(low32(count));
    head.i_ctime.set(high32(count));
}

/// How the references to values change.
#[derive(Debug, Default)]
pub(super) struct References(BTreeMap<InodeNumber, i64>);

impl References {
    /// Entries of a list that are gone, and those that came.
    pub fn exchange(&mut self, gone: &[Attribute], came: &[Attribute]) {
        for (list, by) in [(gone, -1), (came, 1)] {
            for (_, named) in named_values(list) {
                let count = self.0.entry(named.inode).or_insert(0);
                *count = count.saturating_add(by);
            }
        }
    }

    /// Counts them, and frees what nothing refers to any more.
    pub fn apply(self, txn: &mut dyn Transaction, change: &mut Change<'_>) -> Result<()> {
        for (number, by) in self.0.into_iter().filter(|(_, by)| *by != 0) {
            let mut holder = inode::read(txn, number)?;
            let count = references(&holder);
            match count.checked_add_signed(by) {
                Some(left) if left > 0 => {
                    set_references(&mut holder, left);
                    inode::write(txn, &holder)?;
                }
                // Lustre's never had a count.
                _ if by < 0 && (count == 0 || count == by.unsigned_abs()) => free(txn, holder, change)?,
                _ => {
                    let text = format!("{count} references are counted, and would change by {by}");
                    return Err(Defect::Contradiction(text).at(Place::Inode(number)));
                }
            }
        }
        Ok(())
    }
}

/// Frees an inode that held a value.
fn free(txn: &mut dyn Transaction, mut holder: Inode, change: &mut Change<'_>) -> Result<()> {
    if !holder.view().flags().contains(InodeFlags::EA_INODE) {
        let text = "an attribute's value was said to be here, but the flag for that is missing";
        return Err(Defect::Contradiction(text.to_owned()).at(Place::Inode(holder.number())));
    }
    if let Some(sharing) = change.sharing.as_deref_mut() {
        let size = u32::try_from(holder.view().size()).unwrap_or(u32::MAX);
        sharing.forget_value(holder.view().head().i_atime.get(), size);
    }
    let blocks: Vec<BlockRun> = map::segments(txn, &holder, LogicalBlock(0))
        .map(|segment| Ok(segment?.run()))
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .flatten()
        .collect();
    for block in blocks.into_iter().flat_map(BlockRun::iter) {
        txn.forget(block)?;
    }
    let end = map::block_limit(txn, &holder);
    map::remove(txn, &mut holder, 0, end)?;
    holder.set_size(0);
    holder.set_links(0);
    set_references(&mut holder, 0);
    // A deleted inode without a time of deletion would be taken for damage.
    let seconds = u32::try_from(change.time.seconds.clamp(1, u32::MAX.into())).unwrap_or(1);
    holder.set_deletion_time(seconds);
    inode::write(txn, &holder)?;
    txn.release_inode(holder.number(), false)
}

/// Changes the owner's `i_blocks` by what its entries' values take, before and after.
pub(super) fn recharge(
    txn: &dyn Transaction,
    owner: &mut Inode,
    before: &Places,
    after: &Places,
) -> Result<()> {
    let taken = charged(txn, owner, after)?;
    let given = charged(txn, owner, before)?;
    let change = taken.checked_sub_unsigned(given.unsigned_abs());
    let change = change.ok_or(Error::FileTooBig(owner.number()))?;
    if change == 0 { Ok(()) } else { inode::change_blocks(txn, owner, change) }
}

/// The blocks that an owner is charged for its entries' values: whole clusters for each entry.
pub(super) fn charged(txn: &dyn Transaction, owner: &Inode, places: &Places) -> Result<i64> {
    let geometry = &txn.layout().geometry;
    let bits = geometry.block_bits().saturating_add(geometry.cluster_bits());
    let mut clusters = 0i64;
    for (name, named) in named_values(&places.area).chain(named_values(&places.block)) {
        if holder(txn, owner, name, named)?.1 == Holder::Counted {
            let taken = u64::from(named.size).div_ceil(1 << bits);
            clusters = clusters.saturating_add_unsigned(taken);
        }
    }
    Ok(clusters.saturating_mul(geometry.blocks_per_cluster().into()))
}
