//! How many rows of a segment a shorter one has room for.

use crate::changes::bytes_of_eviction;
use crate::inspect::{Inspected, Inspection, SegmentState};
use crate::schema::key::KeyType;
use crate::segment::Segment;

/// Bytes of an entry in a list of 64-bit offsets.
const OFFSET: usize = size_of::<i64>();
/// What the alignment of a column may take, if none of its buffers is large.
const ALIGNMENT: usize = 3 * 64;
/// In a file of this size, a column may begin at a page.
const LARGE: usize = 64 << 10;
const PAGE: usize = 4096;

impl Inspection {
    /// How many live rows of a segment fit in `bytes` bytes, if it is [trimmed](crate::Store::trim_segment). An estimate: the columns
    /// of the shorter segment begin elsewhere, and its rows may be easier or harder to compress. 0 for a segment that is not served, cannot
    /// be read, or that another process has begun to evict or to trim.
    ///
    /// ```
    /// # use tcx_store::{Column, ColumnType, DType, Identity, Inspection, KeyType, Keys, Options, Spec, Store};
    /// # let dir = tempfile::tempdir()?;
    /// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[1000] };
    /// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
    /// # let store = Store::open(dir.path(), spec, &Options::default())?;
    /// # let mut rows = store.lookup(Keys::ints(0..100, 0))?;
    /// # let all: Vec<usize> = (0..100).collect();
    /// # store.insert(&mut rows, &all, vec![Column::dense(&vec![7; 100_000])])?;
    /// # store.flush()?;
    /// let module = Inspection::open(&dir.path().join("m_v1"))?;
    /// let segment = module.segments().next().expect("a flush has sealed one");
    /// assert!((30..50).contains(&module.rows_within(&segment.name, segment.bytes / 2)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rows_within(&self, segment: &str, bytes: u64) -> u64 {
        let own = self.segments.iter().find(|own| own.facts.name == segment);
        let own = own.filter(|own| own.facts.state == SegmentState::Served);
        let tombstones = self.changes.tombstones();
        let may_be_cut =
            |segment: &&Segment| tombstones.let_join(segment.name().random, segment.dated(), None);
        let fitting = own.and_then(|own| {
            let segment = own.segment.as_deref().filter(may_be_cut)?;
            self.fitting(own, segment, bytes)
        });
        fitting.unwrap_or(0) as u64
    }

    /// About how many bytes the changes take that say of these segments that they go, when [`make_room`](crate::Store::make_room) removes
    /// them; 0 for none.
    ///
    /// ```
    /// # use tcx_store::{Column, ColumnType, DType, Identity, Inspection, KeyType, Keys, Options, Spec, Store};
    /// # let dir = tempfile::tempdir()?;
    /// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[1000] };
    /// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
    /// # let store = Store::open(dir.path(), spec, &Options::default())?;
    /// # let mut rows = store.lookup(Keys::ints([1], 0))?;
    /// # store.insert(&mut rows, &[0], vec![Column::dense(&[7; 1000])])?;
    /// # store.flush()?;
    /// let module = Inspection::open(&dir.path().join("m_v1"))?;
    /// let segment = module.segments().next().expect("a flush has sealed one");
    /// assert!((100..1000).contains(&module.removal_bytes(&[&segment.name])));
    /// assert_eq!(module.removal_bytes(&[]), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn removal_bytes(&self, segments: &[&str]) -> u64 {
        let goes = self.segments.iter().filter(|own| segments.contains(&&*own.facts.name));
        let names = goes.map(|own| own.segment.as_ref().map_or(1, |segment| segment.lineage().count()));
        if segments.is_empty() { 0 } else { bytes_of_eviction(names.sum()) }
    }

    /// `None` if a row cannot be trusted or read.
    fn fitting(&self, own: &Inspected, segment: &Segment, bytes: u64) -> Option<usize> {
        let size = RowSize::new(self);
        let all: usize = (0..segment.rows()).map(|row| size.of(own, segment, row)).sum::<Option<usize>>()?;
        let file = segment.bytes();
        let (overhead, share) = if segment.is_compressed() {
            (0, file as f64 / all.max(1) as f64)
        } else {
            let alignment = if file < LARGE { ALIGNMENT } else { PAGE };
            // The key and the view have columns, too.
            (file.saturating_sub(all) + (2 + self.spec.leaves.len()) * alignment, 1.0)
        };
        let room = usize::try_from(bytes).unwrap_or(usize::MAX).saturating_sub(overhead) as f64;
        let (mut used, mut fitting) = (0, 0);
        for row in 0..segment.rows() {
            let (key, view) = own.key(row)?;
            if self.changes.tombstones().kill(segment.base(), key, view) {
                continue;
            }
            used += size.of(own, segment, row)?;
            if used as f64 * share > room {
                break;
            }
            fitting += 1;
        }
        Some(fitting)
    }
}

/// The bytes of rows before they are compressed.
struct RowSize {
    /// What does not depend on the values: the view, integers, rows of fixed width, offsets, and a bit for presence.
    fixed: usize,
    has_varying_keys: bool,
    /// The leaves whose rows differ in length.
    varying: Vec<usize>,
}

impl RowSize {
    fn new(inspection: &Inspection) -> Self {
        let leaves = &inspection.spec.leaves;
        // A key is as long as an offset, or has one.
        let fixed =
            leaves.iter().map(|leaf| leaf.kind.width().unwrap_or(OFFSET) + usize::from(leaf.optional));
        Self {
            fixed: size_of::<u32>() + OFFSET + fixed.sum::<usize>(),
            has_varying_keys: inspection.spec.key_type != KeyType::Int,
            varying: (0..leaves.len()).filter(|leaf| leaves[*leaf].kind.width().is_none()).collect(),
        }
    }

    fn of(&self, own: &Inspected, segment: &Segment, row: usize) -> Option<usize> {
        let key = if self.has_varying_keys { own.key(row)?.0.len() } else { 0 };
        let values = segment.read_row_of(row, &self.varying)?;
        Some(self.fixed + key + values.iter().map(|(bytes, _)| bytes.len()).sum::<usize>())
    }
}
