//! Writes a packed module.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::ipc::writer::StreamWriter;
use blake3::Hasher;
use tcx_store::Spec;

use super::{IDENTITY, KNOWN_VERSION, MAGIC, MODULE, SPEC, VERSION, raw};
use crate::failure::{Failure, Result};
use crate::formats::columns::failed;
use crate::text::ids;

/// The maximum of rows, and of bytes, in a record batch: part of the format, since the same rows have to be the same bytes.
const BATCH: usize = 4096;
const BATCH_BYTES: usize = 32 << 20;

/// Writes rows, which come in the order of their views and keys.
pub(crate) struct Packer {
    writer: StreamWriter<Digesting>,
    schema: SchemaRef,
    batch: Vec<PackedRow>,
    batch_bytes: usize,
    rows: u64,
}

struct PackedRow {
    key: Vec<u8>,
    view: u32,
    leaves: Vec<Option<Vec<u8>>>,
}

impl Packer {
    pub(crate) fn create(path: &Path, spec: &Spec) -> Result<Self> {
        let file = File::create_new(path).map_err(|error| Failure::file("write", path, &error))?;
        let entries = [
            (VERSION, KNOWN_VERSION.to_owned()),
            (MODULE, spec.module_id().to_owned()),
            (IDENTITY, spec.digest()),
            (SPEC, ids::hex(&spec.identity_bytes())),
        ];
        let metadata = HashMap::from(entries.map(|(name, value)| (name.to_owned(), value)));
        let schema = Schema::new(spec.arrow_schema().fields().clone()).with_metadata(metadata);
        let writer = StreamWriter::try_new(Digesting::new(file), &schema);
        let writer = writer.map_err(|error| failed(&error))?;
        Ok(Self { writer, schema: schema.into(), batch: Vec::new(), batch_bytes: 0, rows: 0 })
    }

    /// Adds a row with the bytes of its leaves; `None` is an absent value.
    pub(crate) fn add(&mut self, view: u32, key: &[u8], leaves: &[Option<&[u8]>]) -> Result<()> {
        let leaves: Vec<_> = leaves.iter().map(|leaf| leaf.map(<[u8]>::to_vec)).collect();
        self.batch_bytes += key.len() + leaves.iter().flatten().map(Vec::len).sum::<usize>();
        self.batch.push(PackedRow { key: key.to_owned(), view, leaves });
        self.rows += 1;
        if self.batch.len() == BATCH || self.batch_bytes >= BATCH_BYTES { self.write_batch() } else { Ok(()) }
    }

    fn write_batch(&mut self) -> Result<()> {
        let views: Vec<[u8; 4]> = self.batch.iter().map(|row| row.view.to_le_bytes()).collect();
        let mut columns = Vec::new();
        for (number, field) in self.schema.fields().iter().enumerate() {
            let values: Vec<Option<&[u8]>> = match number {
                0 => self.batch.iter().map(|row| Some(&*row.key)).collect(),
                1 => views.iter().map(|view| Some(&view[..])).collect(),
                _ => self.batch.iter().map(|row| row.leaves[number - 2].as_deref()).collect(),
            };
            columns.push(raw::column(field, &values).map_err(|error| failed(&error))?);
        }
        let batch = RecordBatch::try_new(self.schema.clone(), columns).map_err(|error| failed(&error))?;
        self.writer.write(&batch).map_err(|error| failed(&error))?;
        self.batch.clear();
        self.batch_bytes = 0;
        Ok(())
    }

    /// Writes the trailer and syncs the file; returns the digest, the rows and the bytes.
    pub(crate) fn finish(mut self) -> Result<(String, u64, u64)> {
        if !self.batch.is_empty() {
            self.write_batch()?;
        }
        self.writer.finish().map_err(|error| failed(&error))?;
        let mut to = self.writer.into_inner().map_err(|error| failed(&error))?;
        to.write_all(MAGIC)?;
        to.write_all(&self.rows.to_le_bytes())?;
        let digest = to.hasher.finalize();
        to.write_all(digest.as_bytes())?;
        let bytes = to.bytes;
        to.file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        Ok((digest.to_hex().to_string(), self.rows, bytes))
    }
}

/// A file, and the digest of what was written so far.
struct Digesting {
    file: BufWriter<File>,
    hasher: Hasher,
    bytes: u64,
}

impl Digesting {
    fn new(file: File) -> Self {
        Self { file: BufWriter::new(file), hasher: Hasher::new(), bytes: 0 }
    }
}

impl Write for Digesting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
