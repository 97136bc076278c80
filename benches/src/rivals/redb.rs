//! redb: a transaction for each batch, one lookup for each row.

use std::path::Path;

use redb::{Database, ReadableDatabase as _, TableDefinition};

use super::{Reader, last};
use crate::Result;
use crate::data::rows::map;
use crate::data::workload::BATCH;

const ROWS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("rows");

pub(super) struct Redb {
    database: Database,
    buffer: Vec<u8>,
    width: usize,
}

impl Redb {
    pub(super) fn new(dir: &Path, width: usize, rows: usize) -> Result<Self> {
        let raw = map(&dir.join("raw"))?;
        let database = Database::create(dir.join("redb"))?;
        let write = database.begin_write()?;
        {
            let mut table = write.open_table(ROWS)?;
            for (row, bytes) in raw.chunks_exact(width).take(rows).enumerate() {
                table.insert(format!("sample_{row}").as_str(), bytes)?;
            }
        }
        write.commit()?;
        Ok(Self { database, buffer: vec![0; BATCH * width], width })
    }
}

impl Reader for Redb {
    fn name(&self) -> &'static str {
        "redb"
    }

    fn read(&mut self, _: &[usize], ids: &[String]) -> Result<()> {
        let table = self.database.begin_read()?.open_table(ROWS)?;
        for (to, id) in self.buffer.chunks_exact_mut(self.width).zip(ids) {
            to.copy_from_slice(table.get(id.as_str())?.ok_or("a row is missing")?.value());
        }
        std::hint::black_box(&self.buffer);
        Ok(())
    }

    fn last(&self, rows: usize) -> f32 {
        last(&self.buffer, rows, self.width)
    }
}
