//! LMDB, through `heed`: a transaction for each batch, one lookup for each row.

use std::path::Path;

use heed::types::{Bytes, Str};
use heed::{CommitOrAbort, Database, Env, EnvOpenOptions};

use super::{Reader, last};
use crate::Result;
use crate::data::rows::map;
use crate::data::workload::BATCH;

pub(super) struct Lmdb {
    env: &'static Env,
    rows: Database<'static, Str, Bytes>,
    buffer: Vec<u8>,
    width: usize,
}

impl Lmdb {
    pub(super) fn new(dir: &Path, width: usize, rows: usize) -> Result<Self> {
        let path = dir.join("lmdb");
        std::fs::create_dir_all(&path)?;
        let raw = map(&dir.join("raw"))?;
        let mut options = EnvOpenOptions::new();
        options.map_size((raw.len() * 3 + (1 << 30)).next_multiple_of(1 << 20));
        #[expect(unsafe_code, reason = "LMDB maps its file")]
        // SAFETY: this process has just created the folder, and no other opens it.
        let env = unsafe { options.open(&path)? };
        // The database borrows it until the process of the phase ends.
        let env: &'static Env = Box::leak(Box::new(env));
        let create = env.create_databases_and_commit(env.write_txn()?, |databases, write| {
            databases.create_database(write, None).map(CommitOrAbort::<_, ()>::Commit)
        });
        let database: Database<'static, Str, Bytes> = create?.unwrap_commit();
        let mut write = env.write_txn()?;
        for (row, bytes) in raw.chunks_exact(width).take(rows).enumerate() {
            database.put(&mut write, &format!("sample_{row}"), bytes)?;
        }
        write.commit()?;
        Ok(Self { env, rows: database, buffer: vec![0; BATCH * width], width })
    }
}

impl Reader for Lmdb {
    fn name(&self) -> &'static str {
        "lmdb"
    }

    fn read(&mut self, _: &[usize], ids: &[String]) -> Result<()> {
        let read = self.env.read_txn()?;
        for (to, id) in self.buffer.chunks_exact_mut(self.width).zip(ids) {
            to.copy_from_slice(self.rows.get(&read, id)?.ok_or("a row is missing")?);
        }
        std::hint::black_box(&self.buffer);
        Ok(())
    }

    fn last(&self, rows: usize) -> f32 {
        last(&self.buffer, rows, self.width)
    }
}
