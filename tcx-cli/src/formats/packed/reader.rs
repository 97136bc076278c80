//! Reads a packed module, after every byte was verified.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom, Take};
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Metadata};
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use blake3::Hasher;
use tcx_store::Spec;

use super::raw::Values;
use super::{IDENTITY, KNOWN_VERSION, MAGIC, SPEC, TRAILER, VERSION, in_order};
use crate::failure::{Code, Failure, Result};
use crate::formats::batches::guarded;
use crate::text::ids;

/// A packed file whose digest is right, with rows as its identity requires.
pub(crate) struct Packed {
    path: PathBuf,
    file: File,
    /// Bytes before the trailer.
    body: u64,
    spec: Spec,
    rows: u64,
}

/// Some rows of a packed file.
pub(crate) struct PackedBatch {
    columns: Vec<Values>,
    rows: usize,
}

impl PackedBatch {
    fn of(batch: &RecordBatch) -> Option<Self> {
        let columns = batch.columns().iter().map(|array| Values::of(array)).collect::<Option<_>>()?;
        Some(Self { columns, rows: batch.num_rows() })
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn key(&self, row: usize) -> &[u8] {
        self.columns[0].get(row).unwrap_or_default()
    }

    pub(crate) fn view(&self, row: usize) -> u32 {
        let bytes = self.columns[1].get(row).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    /// The bytes of a leaf of a row; `None` if it has no value.
    pub(crate) fn leaf(&self, leaf: usize, row: usize) -> Option<&[u8]> {
        self.columns[leaf + 2].get(row)
    }
}

impl Packed {
    /// Opens a packed file, and verifies all of it.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is not a packed module, is damaged or cut off, or has a version that this program does
    /// not know.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let mut file = File::open(path).map_err(|error| Failure::file("read", path, &error))?;
        let Some((body, rows)) = verify(&mut file, path)? else {
            let is_packed = entries(&file).is_ok_and(|entries| entries.get(VERSION).is_some());
            return Err(if is_packed { cut(path) } else { foreign(path) });
        };
        let entries = entries(&file).map_err(|what| malformed(path, &what))?;
        let entry = |name: &str| entries.get(name).map(String::as_str);
        if entry(VERSION) != Some(KNOWN_VERSION) {
            let message = format!(
                "{}: version {} of packed files is unknown, expected {KNOWN_VERSION}; install a newer tcx",
                path.display(),
                entry(VERSION).unwrap_or("unnamed")
            );
            return Err(Failure::new(Code::Unfit, message));
        }
        let spec = entry(SPEC).and_then(ids::from_hex);
        let spec = spec.and_then(|bytes| Spec::from_identity_bytes(&bytes).ok());
        let spec = spec.filter(|spec| entry(IDENTITY) == Some(&spec.digest()));
        let spec = spec.ok_or_else(|| malformed(path, "its identity cannot be read"))?;
        let packed = Self { path: path.to_owned(), file, body, spec, rows };
        packed.check_rows()?;
        Ok(packed)
    }

    pub(crate) fn spec(&self) -> &Spec {
        &self.spec
    }

    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Calls `see` with all rows, some at a time, in their order.
    pub(crate) fn each_batch(&self, mut see: impl FnMut(&PackedBatch) -> Result<()>) -> Result<()> {
        let malformed = |what: &str| malformed(&self.path, what);
        let mut reader = guarded(|| stream(&self.file, self.body)).map_err(|what| malformed(&what))?;
        let (found, expected) = (reader.schema(), self.spec.arrow_schema());
        let mut columns = found.fields().iter().zip(expected.fields());
        let is_same = columns.all(|(found, expected)| is_column(found, expected));
        if !is_same || found.fields().len() != expected.fields().len() {
            return Err(malformed("its columns are not those of its identity"));
        }
        while let Some(batch) = guarded(|| reader.next().transpose()).map_err(|what| malformed(&what))? {
            see(&PackedBatch::of(&batch).ok_or_else(|| malformed("a column cannot be read"))?)?;
        }
        Ok(())
    }

    /// Refuses rows that no `tcx pack` writes, before the first one is added: any program can write a digest that fits.
    fn check_rows(&self) -> Result<()> {
        let (mut rows, mut last) = (0, None::<(u32, Vec<u8>)>);
        self.each_batch(|batch| {
            for row in 0..batch.rows() {
                let (view, key) = (batch.view(row), batch.key(row));
                // Ids that no module can have.
                ids::keys(self.spec.key_type(), &[key], view)?;
                let is_next =
                    |last: &(u32, Vec<u8>)| in_order(&self.spec, (last.0, &last.1), (view, key)).is_lt();
                if !last.as_ref().is_none_or(is_next) {
                    return Err(malformed(&self.path, "its rows are not in the order of their ids"));
                }
                last = Some((view, key.to_owned()));
                rows += 1;
            }
            Ok(())
        })?;
        if rows == self.rows {
            return Ok(());
        }
        Err(malformed(&self.path, &format!("expected {} rows, found {rows}", self.rows)))
    }
}

/// Whether a column is the expected one. Metadata is for other programs.
fn is_column(found: &Field, expected: &Field) -> bool {
    found.name() == expected.name()
        && found.data_type() == expected.data_type()
        && found.is_nullable() == expected.is_nullable()
}

type Stream<'f> = StreamReader<BufReader<Take<&'f File>>>;

/// The Arrow stream at the beginning of a file.
fn stream(mut file: &File, bytes: u64) -> Result<Stream<'_>, ArrowError> {
    file.rewind()?;
    StreamReader::try_new(BufReader::new(file.take(bytes)), None)
}

/// The metadata of the stream, which is not verified.
fn entries(file: &File) -> Result<Metadata, String> {
    guarded(|| Ok(stream(file, u64::MAX)?.schema().metadata().clone()))
}

/// Verifies the digest; returns the bytes before the trailer, and the number of rows. `None` if there is no trailer.
fn verify(file: &mut File, path: &Path) -> Result<Option<(u64, u64)>> {
    let failed = |error| Failure::file("read", path, &error);
    let bytes = file.seek(SeekFrom::End(0)).map_err(failed)?;
    let Some(body) = bytes.checked_sub(TRAILER as u64) else { return Ok(None) };
    let mut trailer = [0; TRAILER];
    file.seek(SeekFrom::Start(body)).and_then(|_| file.read_exact(&mut trailer)).map_err(failed)?;
    let (digested, digest) = trailer.split_at(TRAILER - blake3::OUT_LEN);
    let Some(rows) = digested.strip_prefix(MAGIC).and_then(|rows| rows.first_chunk()) else {
        return Ok(None);
    };
    file.rewind().map_err(failed)?;
    let mut hasher = Hasher::new();
    hasher.update_reader((&*file).take(body + digested.len() as u64)).map_err(failed)?;
    let found = hasher.finalize();
    if found.as_bytes() == digest {
        return Ok(Some((body, u64::from_le_bytes(*rows))));
    }
    let message = format!(
        "{} is damaged: expected the digest {}, found {}; copy it again",
        path.display(),
        ids::hex(digest),
        found.to_hex()
    );
    Err(Failure::new(Code::Damaged, message))
}

fn cut(path: &Path) -> Failure {
    Failure::new(Code::Damaged, format!("{} is cut off; copy it again", path.display()))
}

fn foreign(path: &Path) -> Failure {
    let message = format!(
        "{} is not a packed module; `tcx pack` writes these, and `tcx import` reads others",
        path.display()
    );
    Failure::new(Code::Unfit, message)
}

/// The digest is right, but no `tcx pack` has written the file.
fn malformed(path: &Path, what: &str) -> Failure {
    Failure::new(Code::Damaged, format!("{} is malformed: {what}; pack the module again", path.display()))
}
