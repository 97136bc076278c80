//! `tcx export`: writes the rows of a module to a file for other programs.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::ipc::writer::{FileWriter, StreamWriter};
use serde::Serialize;
use tcx_store::{Inspection, Row, SegmentState};

use crate::args::{Format, Module};
use crate::cache::{self, Hidden};
use crate::console::output::{Output, Report};
use crate::console::progress;
use crate::failure::{Code, Failure, Result, Verdict};
use crate::formats::Sink;
use crate::formats::columns::{columns, failed, schema};
use crate::formats::draft;
use crate::formats::lines::{Csv, JsonLines};
use crate::formats::npy_folder::Folder;
use crate::formats::selection::Selection;
use crate::text::human;

/// The maximum of rows, and of bytes, in a record batch.
const BATCH: usize = 4096;
const BATCH_BYTES: usize = 32 << 20;
/// The bytes of a Parquet row group, which is kept in memory until it is complete.
const GROUP_BYTES: usize = 256 << 20;

#[derive(Debug, Serialize)]
struct Exported {
    module: String,
    to: PathBuf,
    rows: u64,
    /// Rows that do not verify.
    left_out: u64,
    #[serde(flatten)]
    hidden: Hidden,
}

/// What is written, and how.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) fields: Vec<String>,
    pub(super) format: Option<Format>,
}

pub(super) fn run(module: &Module, to: &Path, choice: &Choice, output: &Output) -> Result<Verdict> {
    let inspection = cache::inspect(&module.dir, &module.module)?;
    let selection = Selection::new(&inspection, &choice.fields)?;
    let format = choice.format.map_or_else(|| by_ending(to), Ok)?;
    let (rows, left_out) = draft::create(to, |draft| {
        let numbers = selection.numbers.clone();
        write(&inspection, numbers, sink(format, draft, selection)?)
    })?;
    let hidden = Hidden::of(&inspection);
    output.show(&Exported { module: module.module.clone(), to: to.to_owned(), rows, left_out, hidden })?;
    Ok(Verdict::good_if(left_out == 0 && hidden.is_nothing()))
}

fn by_ending(to: &Path) -> Result<Format> {
    match to.extension().and_then(|ending| ending.to_str()) {
        Some("arrow" | "feather") => Ok(Format::Arrow),
        Some("arrows") => Ok(Format::Stream),
        Some("parquet") => Ok(Format::Parquet),
        Some("csv") => Ok(Format::Csv),
        Some("jsonl" | "ndjson") => Ok(Format::Jsonl),
        Some("npy") | None => Ok(Format::Npy),
        Some(other) => {
            Err(Failure::usage(format!("unknown file ending .{other}; choose a format with --format")))
        }
    }
}

fn sink(format: Format, path: &Path, selection: Selection) -> Result<Box<dyn Sink>> {
    let schema = schema(&selection);
    let create = || {
        let file = File::create_new(path).map_err(|error| Failure::file("write", path, &error))?;
        Ok::<_, Failure>(BufWriter::new(file))
    };
    Ok(match format {
        Format::Npy => Box::new(Folder::create(path, selection)?),
        Format::Csv => Box::new(Csv::create(create()?, selection)?),
        Format::Jsonl => Box::new(JsonLines::new(create()?, selection)),
        Format::Arrow => {
            let writer = FileWriter::try_new(create()?, &schema).map_err(|error| failed(&error))?;
            Box::new(Arrow { selection, schema, writer })
        }
        Format::Stream => {
            let writer = StreamWriter::try_new(create()?, &schema).map_err(|error| failed(&error))?;
            Box::new(Arrow { selection, schema, writer })
        }
        Format::Parquet => {
            let writer = parquet::arrow::ArrowWriter::try_new(create()?, schema.clone(), None);
            let writer = writer.map_err(|error| Failure::new(Code::Io, error.to_string()))?;
            Box::new(Arrow { selection, schema, writer })
        }
    })
}

/// Writes all rows; returns their number, and the number of those that do not verify.
fn write(inspection: &Inspection, numbers: Vec<usize>, mut sink: Box<dyn Sink>) -> Result<(u64, u64)> {
    let served = inspection.segments().filter(|own| own.state == SegmentState::Served);
    let bar = progress::rows("exporting", served.map(|own| own.rows).sum());
    let leaves = 0..numbers.len();
    let (mut rows, mut left_out) = (0, 0);
    let mut batch: Vec<Row<'_>> = Vec::new();
    let mut bytes = 0;
    for row in inspection.rows_of(numbers) {
        bar.inc(1);
        let Ok(row) = row else {
            left_out += 1;
            continue;
        };
        rows += 1;
        bytes += leaves.clone().filter_map(|leaf| row.leaf(leaf)).map(<[u8]>::len).sum::<usize>();
        batch.push(row);
        if batch.len() == BATCH || bytes >= BATCH_BYTES {
            sink.write(&batch)?;
            batch.clear();
            bytes = 0;
        }
    }
    if !batch.is_empty() {
        sink.write(&batch)?;
    }
    sink.finish()?;
    bar.finish_and_clear();
    Ok((rows, left_out))
}

struct Arrow<W> {
    selection: Selection,
    schema: SchemaRef,
    writer: W,
}

/// A writer of record batches.
trait Batches {
    fn write(&mut self, batch: &RecordBatch) -> Result<()>;
    fn finish(self) -> Result<BufWriter<File>>;
}

impl Batches for FileWriter<BufWriter<File>> {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.write(batch).map_err(|error| failed(&error))
    }

    fn finish(mut self) -> Result<BufWriter<File>> {
        FileWriter::finish(&mut self).map_err(|error| failed(&error))?;
        self.into_inner().map_err(|error| failed(&error))
    }
}

impl Batches for StreamWriter<BufWriter<File>> {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.write(batch).map_err(|error| failed(&error))
    }

    fn finish(mut self) -> Result<BufWriter<File>> {
        StreamWriter::finish(&mut self).map_err(|error| failed(&error))?;
        self.into_inner().map_err(|error| failed(&error))
    }
}

impl Batches for parquet::arrow::ArrowWriter<BufWriter<File>> {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let failed = |error: parquet::errors::ParquetError| Failure::new(Code::Io, error.to_string());
        self.write(batch).map_err(failed)?;
        // A group limited by its number of rows alone could exceed the memory.
        if self.memory_size() >= GROUP_BYTES { self.flush().map_err(failed) } else { Ok(()) }
    }

    fn finish(self) -> Result<BufWriter<File>> {
        self.into_inner().map_err(|error| Failure::new(Code::Io, error.to_string()))
    }
}

impl<W: Batches> Sink for Arrow<W> {
    fn write(&mut self, rows: &[Row<'_>]) -> Result<()> {
        let batch = RecordBatch::try_new(self.schema.clone(), columns(&self.selection, rows)?)
            .map_err(|error| failed(&error))?;
        self.writer.write(&batch)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let file = self.writer.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(file.sync_all()?)
    }
}

impl Report for Exported {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        writeln!(to, "{} → {}", human::counted(self.rows, "row"), self.to.display())?;
        if self.left_out > 0 {
            writeln!(to, "{} left out because they do not verify", human::counted(self.left_out, "row"))?;
        }
        self.hidden.text(&self.module, to)
    }
}
