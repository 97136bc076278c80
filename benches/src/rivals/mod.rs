//! The stores that are compared: each takes a batch of ids (for the limit, of row numbers) and copies the rows into memory of
//! the caller.

#[cfg(feature = "full")]
mod lmdb;
#[cfg(feature = "full")]
mod redb;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;
use tch::Tensor;
use tcx::{Cache, Cached};

use crate::Result;
use crate::data::rows::map;
use crate::data::workload::{BATCH, Workload, ids};

/// Reads batches.
pub(crate) trait Reader {
    fn name(&self) -> &'static str;

    /// Reads a batch, which replaces the previous one.
    fn read(&mut self, rows: &[usize], ids: &[String]) -> Result<()>;

    /// The first number of the last row of the current batch, which is the number of the row.
    fn last(&self, rows: usize) -> f32;
}

/// All readers of the rows in `dir`; stores that do not exist yet are filled.
pub(crate) fn all<W: Workload>(dir: &Path, rows: usize) -> Result<Vec<Box<dyn Reader>>> {
    let mut all: Vec<Box<dyn Reader>> = vec![
        Box::new(Gather::new(dir, W::bytes())?),
        Box::new(Ours::<W>::new(dir)?),
        Box::new(HashMapGather::new(dir, W::bytes(), rows)?),
    ];
    #[cfg(feature = "full")]
    {
        all.push(Box::new(lmdb::Lmdb::new(dir, W::bytes(), rows)?));
        all.push(Box::new(redb::Redb::new(dir, W::bytes(), rows)?));
    }
    all.truncate(if cfg!(feature = "full") { 5 } else { 3 });
    Ok(all)
}

/// The first number of the last row of a batch.
fn last(buffer: &[u8], rows: usize, width: usize) -> f32 {
    let at = (rows - 1) * width;
    f32::from_le_bytes(buffer[at..at + 4].try_into().expect("four bytes"))
}

/// The limit: a loop that knows the offsets of the rows, with one buffer for all batches.
pub(crate) struct Gather {
    map: Mmap,
    buffer: Vec<u8>,
    width: usize,
}

impl Gather {
    pub(crate) fn new(dir: &Path, width: usize) -> Result<Self> {
        Ok(Self { map: map(&dir.join("raw"))?, buffer: vec![0; BATCH * width], width })
    }
}

impl Reader for Gather {
    fn name(&self) -> &'static str {
        "raw_gather"
    }

    fn read(&mut self, rows: &[usize], _: &[String]) -> Result<()> {
        for (to, &row) in self.buffer.chunks_exact_mut(self.width).zip(rows) {
            to.copy_from_slice(&self.map[row * self.width..][..self.width]);
        }
        std::hint::black_box(&self.buffer);
        Ok(())
    }

    fn last(&self, rows: usize) -> f32 {
        last(&self.buffer, rows, self.width)
    }
}

/// The same with a hash map from ids to offsets.
struct HashMapGather {
    gather: Gather,
    places: HashMap<String, usize>,
}

impl HashMapGather {
    fn new(dir: &Path, width: usize, rows: usize) -> Result<Self> {
        Ok(Self { gather: Gather::new(dir, width)?, places: ids(0..rows).into_iter().zip(0..).collect() })
    }
}

impl Reader for HashMapGather {
    fn name(&self) -> &'static str {
        "memmap_hash_map"
    }

    fn read(&mut self, _: &[usize], ids: &[String]) -> Result<()> {
        let Gather { map, buffer, width } = &mut self.gather;
        for (to, id) in buffer.chunks_exact_mut(*width).zip(ids) {
            to.copy_from_slice(&map[self.places[id] * *width..][..*width]);
        }
        std::hint::black_box(buffer);
        Ok(())
    }

    fn last(&self, rows: usize) -> f32 {
        self.gather.last(rows)
    }
}

/// tcx: one new tensor for each batch.
pub(crate) struct Ours<W> {
    cached: Arc<Cached<W>>,
    batch: Option<Tensor>,
}

impl<W: Workload> Ours<W> {
    pub(crate) fn new(dir: &Path) -> Result<Self> {
        Ok(Self { cached: Arc::new(Cache::open(dir.join("cache"))?.module(W::new())?), batch: None })
    }

    /// Another reader with the same handle.
    pub(crate) fn beside(&self) -> Self {
        Self { cached: self.cached.clone(), batch: None }
    }
}

impl<W: Workload> Reader for Ours<W> {
    fn name(&self) -> &'static str {
        "tcx"
    }

    fn read(&mut self, _: &[usize], ids: &[String]) -> Result<()> {
        // A caller drops a batch before it reads the next one.
        self.batch = None;
        self.batch = Some(read(&self.cached, ids)?);
        Ok(())
    }

    fn last(&self, rows: usize) -> f32 {
        self.batch.as_ref().map_or(f32::NAN, |batch| first_of(batch, rows - 1))
    }
}

/// Reads a batch through the typed interface.
pub(crate) fn read<W: Workload>(cached: &Cached<W>, ids: &[String]) -> Result<Tensor> {
    Ok(W::tensor(cached.fetch(ids, |_| Err(tcx::Error::loader("a row is missing")))?))
}

/// The first number of a row.
pub(crate) fn first_of(batch: &Tensor, row: usize) -> f32 {
    batch.double_value(&[row as i64, 0]) as f32
}
