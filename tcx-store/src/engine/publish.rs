//! Giving a written segment its name, and showing it to readers.

use std::io;
use std::sync::Arc;

use crate::changes::Needs;
use crate::changes::instance::KnownIdentity;
use crate::engine::Core;
use crate::error::{Error, Result};
use crate::index::build_run;
use crate::live::folder::Live;
use crate::live::run_set::publish_run;
use crate::schema::key::KeyHashes;
use crate::segment::{Ancestors, Segment, SegmentHeader, WrittenSegment};
use crate::storage::name::{FileName, SegmentName};
use crate::sys::bytes::Random;

impl Core {
    /// What the rows have in common of a segment that is sealed.
    pub(crate) fn segment_header<'a>(
        &'a self,
        identity: &'a KnownIdentity,
        needs: Needs,
        born: u64,
    ) -> SegmentHeader<'a> {
        SegmentHeader {
            schema: &self.schema,
            leaves: &self.leaves,
            key_type: self.spec.key_type,
            identity: &identity.digest,
            instance: identity.instance,
            needs,
            born,
            youngest: None,
            inputs: Vec::new(),
            ancestors: Ancestors::default(),
            compression: self.compression,
        }
    }

    /// What the rows have in common of a segment of `rows` rows that takes the place of these.
    pub(crate) fn joined_header<'a>(
        &'a self,
        identity: &'a KnownIdentity,
        base: u64,
        inputs: &[Arc<Segment>],
        rows: usize,
    ) -> SegmentHeader<'a> {
        let born = inputs.iter().map(|input| input.born()).min().unwrap_or(0);
        let youngest = inputs.iter().map(|input| input.youngest()).max();
        SegmentHeader {
            youngest: youngest.filter(|youngest| *youngest < u64::MAX),
            inputs: inputs.iter().map(|input| input.name()).collect(),
            ancestors: Ancestors::of(inputs, rows),
            ..self.segment_header(identity, Needs { base, commit: None }, born)
        }
    }
}

/// Publishes a segment, whose rows have these hashes in order, and its index run. Readers of this process see it then.
///
/// # Errors
///
/// Returns an error if the segment cannot be made durable, if it does not verify when it is read back, or if the folder is not
/// the one that was opened.
pub(crate) fn publish_segment(core: &Core, written: WrittenSegment, hashes: KeyHashes) -> Result<()> {
    // After the segment was written: it gets its name only in the folder that holds it.
    check_folder(core)?;
    let run = index_segment(core, &written, hashes);
    publish_indexed(core, written, run)
}

/// As [`publish_segment`], of a segment whose index run is there.
pub(crate) fn publish_indexed(core: &Core, written: WrittenSegment, run: Random) -> Result<()> {
    let name = written.name;
    publish_files(core, written, run)
        .map_err(|e| Error::io("cannot write a segment in", core.storage.path(), e))?;
    // Others find it only if the folder was the same all the time.
    check_folder(core).inspect_err(|_| tracing::debug!(segment = %name, "not acknowledged"))
}

fn check_folder(core: &Core) -> Result<()> {
    core.live().check_instance().inspect_err(|error| core.remember(error))
}

fn publish_files(core: &Core, written: WrittenSegment, run: Random) -> io::Result<()> {
    let name = written.name;
    written.publish().inspect_err(|_| forget_index(core, run))?;
    let mut live = core.live();
    let added = add_segment(&mut live, name, run);
    core.install(&mut live);
    added
}

/// Publishes the index run of a segment that has no name yet, so that a process that sees the segment finds it indexed. It can be made
/// again: without it, the segment is written all the same.
pub(crate) fn index_segment(core: &Core, written: &WrittenSegment, hashes: KeyHashes) -> Random {
    let (run, KeyHashes { seed, hashes }) = (Random::new(), hashes);
    if let Err(error) = publish_run(&*core.storage, run, &build_run(seed, &[(written.name, hashes)])) {
        tracing::debug!(segment = %written.name, "cannot write its index run: {error}");
    }
    run
}

/// The segment of this index run gets no name. Best effort: a run that stays names a segment that no process will find.
pub(crate) fn forget_index(core: &Core, run: Random) {
    let _ = core.storage.remove(&FileName::Run(run).to_string());
}

/// Takes note of a segment that this process has published.
///
/// One that is gone by now was durable, and another process has collected it: its rows were joined with others, invalidated or evicted, as
/// they could be at any later time. What took its place is in the next listing. Whether the folder is the same is for the caller to check.
fn add_segment(live: &mut Live, name: SegmentName, run: Random) -> io::Result<()> {
    match live.add(name, run) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            tracing::debug!(segment = %name, "collected by another process before it was opened");
            // A listing that fails is tried again by the next lookup.
            let _ = live.refresh();
            Ok(())
        }
        added => added,
    }
}
