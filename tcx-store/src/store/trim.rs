//! Rewriting a segment with fewer rows.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use crate::changes::Tombstones;
use crate::changes::instance::KnownIdentity;
use crate::engine::Core;
use crate::error::{Error, ErrorKind, Result};
use crate::schema::key::{KeyHashes, KeySeed};
use crate::segment::{Piece, PieceRows, PieceSource, Segment, write_segment};
use crate::storage::name::{FileName, SegmentName};
use crate::store::Store;
use crate::sys::runtime::lock;
use crate::upkeep::compaction::{Removal, announce_removal, hand_on_uses, publish_replacing, verify_still};

impl Store {
    /// Rewrites a segment with its first `rows` live rows: the newest, if it was joined from others. The other rows are gone,
    /// unless another segment has copies of them; they can be computed again. Returns whether it did: not if the segment is no
    /// longer served, has no more rows than that, or none is alive.
    ///
    /// What it replaces stays until it is [collected](Self::collect).
    ///
    /// ```
    /// # use tcx_store::{Column, ColumnType, DType, Identity, Inspection, KeyType, Keys, Options, Spec, Store};
    /// # let dir = tempfile::tempdir()?;
    /// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
    /// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
    /// # let store = Store::open(dir.path(), spec, &Options::default())?;
    /// let mut rows = store.lookup(Keys::ints([1, 2, 3], 0))?;
    /// store.insert(&mut rows, &[0, 1, 2], vec![Column::dense(&[10, 20, 30])])?;
    /// store.flush()?;
    /// let module = Inspection::open(&dir.path().join("m_v1"))?;
    /// let segment = module.segments().next().expect("a flush has sealed one");
    /// assert!(store.trim_segment(&segment.name, 2)?);
    /// assert_eq!(store.lookup(Keys::ints([1, 2, 3], 0))?.distinct_missing_positions(), [2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A store that is open to read only; a name that is not a segment's; a folder that is another's; what kept it from the
    /// disk, or a row that does not verify: nothing has changed.
    pub fn trim_segment(&self, segment: &str, rows: u64) -> Result<bool> {
        self.writer()?;
        let Some(FileName::Segment(name)) = FileName::parse(segment) else {
            return Err(Error::invalid(format!("{segment:?} is not the name of a segment")));
        };
        let core = &self.core;
        core.check()?;
        // Compaction of this process would replace the same segment.
        let _alone = lock(&core.upkeep);
        let Some(plan) = plan(core, name, usize::try_from(rows).unwrap_or(usize::MAX))? else {
            return Ok(false);
        };
        let is_done = rewrite(core, &plan)
            .map_err(|error| Error::io("cannot rewrite a segment in", core.storage.path(), error))?;
        if is_done {
            remove_pruned_runs(core);
        }
        Ok(is_done)
    }
}

/// A segment, and how many of its live rows stay.
struct Plan {
    segment: Arc<Segment>,
    identity: KnownIdentity,
    base: u64,
    tombstones: Arc<Tombstones>,
    rows: usize,
}

fn plan(core: &Core, name: SegmentName, rows: usize) -> Result<Option<Plan>> {
    let mut live = core.live();
    if live.refresh()? {
        core.install(&mut live);
    }
    let Some((served, identity)) = live.compactable() else { return Ok(None) };
    let base = live.changes.newest().unwrap_or(0);
    let tombstones = live.changes.tombstones().clone();
    let segment = served.into_iter().find(|own| own.name() == name).filter(|own| own.rows() > rows);
    // Another process is about to remove rows, or was killed before it did.
    let segment = segment.filter(|own| tombstones.let_join(own.name().random, own.dated(), None));
    Ok(segment.map(|segment| Plan { segment, identity, base, tombstones, rows }))
}

/// Writes the new segment as a compaction of the old one, which it replaces; `false` if another process was faster.
fn rewrite(core: &Core, plan: &Plan) -> io::Result<bool> {
    let Plan { segment, identity, base, .. } = plan;
    let (rows, hashes) = first_live_rows(plan)?;
    if rows.is_empty() {
        return Ok(false);
    }
    let inputs = std::slice::from_ref(segment);
    let header = core.joined_header(identity, *base, inputs, rows.len());
    let piece = Piece { source: PieceSource::Segment(segment), rows: PieceRows::Selected(&rows) };
    let written = write_segment(&*core.storage, &header, &[piece])?;
    let name = written.name;
    // Not once the segment is said to leave.
    verify_still(&plan.tombstones, inputs)?;
    // The rows that do not stay are not brought back by another process that joins the segment at this time.
    let removal = Removal {
        until: segment.youngest(),
        goes: HashSet::new(),
        rewritten: Some((segment.name(), name)),
        lineage: HashSet::new(),
        known: None,
    };
    match announce_removal(core, &removal) {
        Err(error) if error.kind() == ErrorKind::Contended => return Ok(false),
        announced => announced.map_err(io::Error::other)?,
    }
    if !publish_replacing(core, written, hashes, (identity.instance, &plan.tombstones), inputs)? {
        return Ok(false);
    }
    hand_on_uses(core, inputs, name);
    Ok(true)
}

/// The rows that stay, and their hashes.
fn first_live_rows(plan: &Plan) -> io::Result<(Vec<u32>, KeyHashes)> {
    let Plan { segment, tombstones, identity, .. } = plan;
    let seed = KeySeed::of_instance(identity.instance);
    let (mut rows, mut hashes) = (Vec::new(), Vec::new());
    for row in 0..segment.rows() {
        if rows.len() == plan.rows {
            break;
        }
        let (key, view) = segment.key(row).ok_or_else(|| {
            let what = format!("segment {}: a key cannot be read", segment.name());
            io::Error::new(io::ErrorKind::InvalidData, what)
        })?;
        if !tombstones.kill(segment.base(), &key, view) {
            rows.push(row as u32);
            hashes.push(seed.hash(&key, view));
        }
    }
    Ok((rows, KeyHashes { seed, hashes }))
}

/// Removes the index run of the replaced segment. Best effort: a run that stays is found to add nothing by other processes.
fn remove_pruned_runs(core: &Core) {
    let pruned = core.live().take_pruned_runs();
    for run in pruned {
        let _ = core.storage.remove(&FileName::Run(run).to_string());
    }
}
