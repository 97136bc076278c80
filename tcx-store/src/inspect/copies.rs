//! What copies of a module have to know of evictions.

use std::collections::HashSet;

use super::{Inspected, Inspection, SegmentState};
use crate::changes::KnownChanges;
use crate::storage::name::{FileName, SegmentName};
use crate::sys::bytes::Random;

impl Inspection {
    /// Whether the rows of the segment with this name were evicted, whether its file is here or not. It is dead in every copy of the module
    /// that has these changes, so there is no use in copying it.
    ///
    /// ```
    /// # use tcx_store::{Column, ColumnType, DType, Identity, Inspection, KeyType, Keys, Options, Spec, Store};
    /// # let dir = tempfile::tempdir()?;
    /// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
    /// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
    /// # let store = Store::open(dir.path(), spec, &Options::default())?;
    /// let mut rows = store.lookup(Keys::ints([1], 0))?;
    /// store.insert(&mut rows, &[0], vec![Column::dense(&[10])])?;
    /// store.flush()?;
    /// let module = Inspection::open(&dir.path().join("m_v1"))?;
    /// let name = module.segments().next().expect("a flush has sealed one").name.clone();
    /// store.make_room(1)?;
    /// let module = Inspection::open(&dir.path().join("m_v1"))?;
    /// assert!(module.segments().next().is_none() && module.is_evicted(&name));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_evicted(&self, segment: &str) -> bool {
        let tombstones = self.changes.tombstones();
        parse(segment).is_some_and(|name| tombstones.name_segment(name.random))
    }

    /// Whether the segment with this name was joined with others, one time after another, to one that is here.
    ///
    /// ```
    /// # use tcx_store::{Column, ColumnType, DType, Identity, Inspection, KeyType, Keys, Options, Spec, Store};
    /// # let dir = tempfile::tempdir()?;
    /// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
    /// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
    /// # let store = Store::open(dir.path(), spec, &Options::default())?;
    /// for key in [1, 2] {
    ///     let mut rows = store.lookup(Keys::ints([key], 0))?;
    ///     store.insert(&mut rows, &[0], vec![Column::dense(&[10])])?;
    ///     store.flush()?;
    /// }
    /// let before = Inspection::open(&dir.path().join("m_v1"))?;
    /// store.compact()?;
    /// let after = Inspection::open(&dir.path().join("m_v1"))?;
    /// assert!(before.segments().all(|segment| after.has_joined(&segment.name) && !before.has_joined(&segment.name)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn has_joined(&self, segment: &str) -> bool {
        parse(segment).is_some_and(|name| self.joined().any(|own| own == name.random))
    }

    /// Whether a segment that is served was joined from one, so that this one has no row of its own any more.
    ///
    /// ```
    /// # use tcx_store::{Column, ColumnType, DType, Identity, Inspection, KeyType, Keys, Options, Spec, Store};
    /// # let dir = tempfile::tempdir()?;
    /// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
    /// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
    /// # let store = Store::open(dir.path(), spec, &Options::default())?;
    /// for key in [1, 2] {
    ///     let mut rows = store.lookup(Keys::ints([key], 0))?;
    ///     store.insert(&mut rows, &[0], vec![Column::dense(&[10])])?;
    ///     store.flush()?;
    /// }
    /// let before = Inspection::open(&dir.path().join("m_v1"))?;
    /// store.compact()?;
    /// let after = Inspection::open(&dir.path().join("m_v1"))?;
    /// assert!(before.segments().all(|segment| after.has_replaced(&segment.name)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn has_replaced(&self, segment: &str) -> bool {
        let served = self.segments.iter().filter(|own| own.facts.state == SegmentState::Served);
        let joined = || served.filter_map(|own| own.segment.as_deref()).flat_map(|own| own.lineage().skip(1));
        parse(segment).is_some_and(|name| joined().any(|own| own == name.random))
    }

    /// Whether rows were evicted by a change of this number or a later one.
    ///
    /// ```
    /// # use tcx_store::{Column, ColumnType, DType, Identity, Inspection, KeyType, Keys, Options, Spec, Store};
    /// # let dir = tempfile::tempdir()?;
    /// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
    /// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
    /// # let store = Store::open(dir.path(), spec, &Options::default())?;
    /// let mut rows = store.lookup(Keys::ints([1], 0))?;
    /// store.insert(&mut rows, &[0], vec![Column::dense(&[10])])?;
    /// store.flush()?;
    /// store.make_room(1)?;
    /// let module = Inspection::open(&dir.path().join("m_v1"))?;
    /// assert!(module.evicts_since(module.newest_change()) && !module.evicts_since(module.newest_change() + 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn evicts_since(&self, number: u64) -> bool {
        self.changes.tombstones().evict_since(number)
    }

    /// The served segments that would be dead by the changes of a copy of the module, although their rows were not invalidated: some of these were
    /// evicted there, and the segments to which they have been joined here were not there.
    ///
    /// Those do not count that were joined to others which are here or in the copy.
    ///
    /// ```
    /// # use tcx_store::{Column, ColumnType, DType, Identity, Inspection, KeyType, Keys, Options, Spec, Store};
    /// # let dir = tempfile::tempdir()?;
    /// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
    /// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
    /// # let store = Store::open(dir.path(), spec, &Options::default())?;
    /// # let mut rows = store.lookup(Keys::ints([1], 0))?;
    /// # store.insert(&mut rows, &[0], vec![Column::dense(&[10])])?;
    /// # store.flush()?;
    /// let here = Inspection::open(&dir.path().join("m_v1"))?;
    /// // Nothing was evicted in this copy of it.
    /// let copy = Inspection::open(&dir.path().join("m_v1"))?;
    /// assert!(here.lost_by(&copy).is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lost_by(&self, copy: &Self) -> Vec<String> {
        let tombstones = copy.changes.tombstones();
        let joined: HashSet<Random> = [self, copy].iter().flat_map(|own| own.joined()).collect();
        let is_lost = |own: &&Inspected| {
            let Some(segment) = own.segment.as_deref() else { return false };
            let is_dead = || (0..segment.rows()).all(|row| own.is_dead(row, &copy.changes));
            own.facts.state == SegmentState::Served
                && tombstones.evict_unseen(segment.dated())
                && !joined.contains(&segment.name().random)
                && !is_dead()
        };
        self.segments.iter().filter(is_lost).map(|own| own.facts.name.clone()).collect()
    }

    /// What its segments were joined from.
    fn joined(&self) -> impl Iterator<Item = Random> + '_ {
        let segments = self.segments.iter().filter_map(|own| own.segment.as_deref());
        segments.flat_map(|own| own.lineage().skip(1))
    }
}

impl Inspected {
    /// Whether a row is invalidated by these changes.
    fn is_dead(&self, row: usize, changes: &KnownChanges) -> bool {
        let (tombstones, segment) = (changes.tombstones(), self.segment.as_deref());
        let base = self.facts.base;
        let is_too_old = segment.is_some_and(|own| tombstones.kill_by_age(base, own.born()));
        is_too_old || self.key(row).is_some_and(|(key, view)| tombstones.kill(base, key, view))
    }
}

fn parse(segment: &str) -> Option<SegmentName> {
    match FileName::parse(segment) {
        Some(FileName::Segment(name)) => Some(name),
        _ => None,
    }
}
