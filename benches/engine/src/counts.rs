//! Runs the two hot paths of the store for callgrind, which counts their instructions: `cargo xtask test` compares the counts
//! with `benches/engine/counts.txt`. Counts of instructions, unlike times, are nearly the same on every machine.

use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tcx_store::{
    Column, ColumnType, DType, Destination, Identity, KeyType, Keys, LookupOptions, Options, Spec, Store,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const BATCH: usize = 256;
const BATCHES: usize = 40;
const WIDTH: usize = 64 * 4;

fn main() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let store = open(dir.path())?;
    let ids: Vec<Vec<String>> = (0..BATCHES).map(ids).collect();
    for ids in &ids {
        write_path(&store, ids)?;
    }
    store.flush()?;
    drop(store);
    let store = open(dir.path())?;
    let mut buffer = Vec::with_capacity(BATCH * WIDTH);
    let memory = &mut buffer.spare_capacity_mut()[..BATCH * WIDTH];
    // Verifies every checksum.
    for ids in &ids {
        drop(store.lookup(Keys::text(ids, 0)?)?);
    }
    for ids in &ids {
        read_path(&store, ids, memory)?;
    }
    Ok(())
}

fn open(dir: &Path) -> Result<Arc<Store>> {
    let output = ColumnType::Dense { dtype: DType::F32, shape: &[64] };
    let spec = Spec::new("counts_v1", KeyType::Text, &output, Identity::default(), Vec::new())?;
    // Only these calls do work.
    let (flush_interval, refresh_every) = (Duration::from_hours(1), Duration::from_hours(1));
    let options = Options { flush_interval, refresh_every, ..Options::default() };
    Ok(Store::open(dir, spec, &options)?)
}

fn ids(batch: usize) -> Vec<String> {
    (batch * BATCH..(batch + 1) * BATCH).map(|number| format!("sample_{number}")).collect()
}

/// Rows that no process has computed yet, from the lookup to where the writer takes over.
#[inline(never)]
fn write_path(store: &Store, ids: &[String]) -> Result<()> {
    let values = vec![1; BATCH * WIDTH];
    let mut rows = store.lookup(Keys::text(ids, 0)?)?;
    let positions = rows.distinct_missing_positions();
    store.insert(&mut rows, &positions, vec![Column::dense(&values)])?;
    Ok(())
}

/// A batch of present rows: packs the ids, looks them up, confirms the keys and copies the rows.
#[inline(never)]
fn read_path(store: &Store, ids: &[String], memory: &mut [MaybeUninit<u8>]) -> Result<()> {
    let destination = Destination { leaf: 0, bytes: &mut *memory };
    let rows = store.lookup_with(
        Keys::text(ids, 0)?,
        LookupOptions { destinations: &mut [destination], ..LookupOptions::default() },
    )?;
    rows.copy_rest(0, memory);
    std::hint::black_box(memory);
    Ok(())
}
