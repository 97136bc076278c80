//! A file of ids that are read a part at a time, in any order: the lines of a text file, or a column of a Parquet or Arrow file.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Schema};
use arrow::error::ArrowError;
use arrow::ipc::reader::FileReader;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReaderBuilder};

use crate::failure::{Code, Failure, Result};
use crate::formats::batches::guarded;
use crate::formats::columns::{binaries, texts};
use crate::text::ids;

/// Of a text file, the place of one in this number of ids is kept.
const EVERY: u64 = 1024;
/// The column of the ids, unless the user names one.
const COLUMN: &str = "id";

/// An open file of ids.
pub(crate) struct IdFile {
    path: PathBuf,
    len: u64,
    kind: Kind,
}

enum Kind {
    /// Where every [`EVERY`]th id begins.
    Lines { file: BufReader<File>, places: Vec<u64> },
    /// The first row of each record batch.
    Arrow { reader: Box<FileReader<BufReader<File>>>, starts: Vec<u64> },
    /// The first row of each row group.
    Parquet { file: File, metadata: ArrowReaderMetadata, column: usize, starts: Vec<u64> },
}

impl IdFile {
    /// Opens a file, and detects its format by its first bytes. `column` is that of the ids, for files with columns.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or has no such column.
    pub(crate) fn open(path: &Path, column: Option<&str>) -> Result<Self> {
        let failed = |error| Failure::file("read", path, &error);
        let unfit = |what: String| Failure::new(Code::Unfit, format!("{}: {what}", path.display()));
        let mut file = File::open(path).map_err(failed)?;
        let mut start = Vec::new();
        file.by_ref().take(8).read_to_end(&mut start).map_err(failed)?;
        file.rewind().map_err(failed)?;
        let (len, kind) = match start.as_slice() {
            [b'P', b'A', b'R', b'1', ..] => guarded(|| parquet(file, column)).map_err(unfit)?,
            [b'A', b'R', b'R', b'O', b'W', b'1', ..] => guarded(|| arrow(&file, column)).map_err(unfit)?,
            _ if column.is_some() => return Err(unfit("--column is for Parquet and Arrow files".to_owned())),
            _ => lines(file).map_err(failed)?,
        };
        Ok(Self { path: path.to_owned(), len, kind })
    }

    /// How many ids there are.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The ids from position `start`: `count`, or fewer at the end. Integers are decimal, bytes are hex.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or if the column contains nulls, or no ids.
    pub(crate) fn read(&mut self, start: u64, count: u64) -> Result<Vec<String>> {
        let end = start.saturating_add(count).min(self.len);
        if start >= end {
            return Ok(Vec::new());
        }
        let path = &self.path;
        let unfit = |what: String| Failure::new(Code::Unfit, format!("{}: {what}", path.display()));
        let found = match &mut self.kind {
            Kind::Lines { file, places } => {
                read_lines(file, places, start..end).map_err(|error| Failure::file("read", path, &error))?
            }
            Kind::Arrow { reader, starts } => {
                guarded(|| read_arrow(reader, starts, start..end)).map_err(unfit)?
            }
            Kind::Parquet { file, metadata, column, starts } => {
                guarded(|| read_parquet(file, metadata, *column, starts, start..end)).map_err(unfit)?
            }
        };
        if found.len() as u64 != end - start {
            return Err(unfit("the file has changed since it was opened".to_owned()));
        }
        Ok(found)
    }
}

fn lines(file: File) -> std::io::Result<(u64, Kind)> {
    let mut file = BufReader::new(file);
    let (mut places, mut len, mut place, mut line) = (Vec::new(), 0, 0, Vec::new());
    loop {
        line.clear();
        let bytes = file.read_until(b'\n', &mut line)? as u64;
        if bytes == 0 {
            return Ok((len, Kind::Lines { file, places }));
        }
        if !id_of(&line).is_empty() {
            if u64::is_multiple_of(len, EVERY) {
                places.push(place);
            }
            len += 1;
        }
        place += bytes;
    }
}

/// A line without its end.
fn id_of(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").map_or(line, |line| line.strip_suffix(b"\r").unwrap_or(line))
}

fn read_lines(
    file: &mut BufReader<File>,
    places: &[u64],
    positions: Range<u64>,
) -> std::io::Result<Vec<String>> {
    let group = positions.start / EVERY;
    let place = usize::try_from(group).ok().and_then(|group| places.get(group)).copied();
    file.seek(SeekFrom::Start(place.unwrap_or_default()))?;
    let (mut at, mut found, mut line) = (group * EVERY, Vec::new(), Vec::new());
    while at < positions.end {
        line.clear();
        if file.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let own = id_of(&line);
        if own.is_empty() {
            continue;
        }
        if at >= positions.start {
            let text = std::str::from_utf8(own).map_err(|_| std::io::ErrorKind::InvalidData)?;
            found.push(text.to_owned());
        }
        at += 1;
    }
    Ok(found)
}

/// The position of the column of ids.
fn column_of(schema: &Schema, name: Option<&str>) -> Result<usize, ArrowError> {
    if let Ok(found) = schema.index_of(name.unwrap_or(COLUMN)) {
        return Ok(found);
    }
    match (name, schema.fields().len()) {
        (None, 1) => Ok(0),
        (None, _) => Err(unfit(&format!("no column `{COLUMN}`; name the column of the ids with --column"))),
        (Some(name), _) => {
            let names: Vec<&str> = schema.fields().iter().map(|field| &**field.name()).collect();
            Err(unfit(&format!("no column `{name}`; its columns are {}", names.join(", "))))
        }
    }
}

fn unfit(what: &str) -> ArrowError {
    ArrowError::ExternalError(what.into())
}

fn arrow(file: &File, column: Option<&str>) -> Result<(u64, Kind), ArrowError> {
    let open = |projection| FileReader::try_new(BufReader::new(file.try_clone()?), projection);
    let column = column_of(&open(None)?.schema(), column)?;
    let (mut starts, mut len) = (Vec::new(), 0);
    for batch in open(Some(vec![column]))? {
        starts.push(len);
        len += batch?.num_rows() as u64;
    }
    Ok((len, Kind::Arrow { reader: Box::new(open(Some(vec![column]))?), starts }))
}

/// The parts with these positions, by the first position of each part; and the position of the first of them.
fn parts(starts: &[u64], positions: &Range<u64>) -> (Range<usize>, u64) {
    // The last one that begins there: parts without rows begin where the next one does.
    let first = starts.partition_point(|start| *start <= positions.start).saturating_sub(1);
    let end = starts.partition_point(|start| *start < positions.end);
    (first..end, starts.get(first).copied().unwrap_or_default())
}

fn read_arrow(
    reader: &mut FileReader<BufReader<File>>,
    starts: &[u64],
    positions: Range<u64>,
) -> Result<Vec<String>, ArrowError> {
    let (parts, mut at) = parts(starts, &positions);
    let mut found = Vec::new();
    reader.set_index(parts.start)?;
    for batch in reader.take(parts.len()) {
        let batch = batch?;
        let rows = batch.num_rows() as u64;
        let from = positions.start.saturating_sub(at).min(rows);
        let to = positions.end.saturating_sub(at).min(rows);
        found.extend(ids_in(&batch.slice(from as usize, to.saturating_sub(from) as usize))?);
        at += rows;
    }
    Ok(found)
}

fn parquet(file: File, column: Option<&str>) -> Result<(u64, Kind), ArrowError> {
    let metadata = ArrowReaderMetadata::load(&file, parquet::arrow::arrow_reader::ArrowReaderOptions::new())?;
    let column = column_of(metadata.schema(), column)?;
    let (mut starts, mut len) = (Vec::new(), 0);
    for group in metadata.metadata().row_groups() {
        starts.push(len);
        len += u64::try_from(group.num_rows()).unwrap_or_default();
    }
    Ok((len, Kind::Parquet { file, metadata, column, starts }))
}

fn read_parquet(
    file: &File,
    metadata: &ArrowReaderMetadata,
    column: usize,
    starts: &[u64],
    positions: Range<u64>,
) -> Result<Vec<String>, ArrowError> {
    let (parts, at) = parts(starts, &positions);
    let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file.try_clone()?, metadata.clone());
    let mask = ProjectionMask::roots(builder.parquet_schema(), [column]);
    let reader = builder
        .with_row_groups(parts.collect())
        .with_projection(mask)
        .with_offset((positions.start - at) as usize)
        .with_limit((positions.end - positions.start) as usize)
        .build()?;
    let mut found = Vec::new();
    for batch in reader {
        found.extend(ids_in(&batch?)?);
    }
    Ok(found)
}

/// The ids of a batch with one column.
fn ids_in(batch: &RecordBatch) -> Result<Vec<String>, ArrowError> {
    let array: &ArrayRef = batch.column(0);
    if array.null_count() > 0 {
        return Err(unfit("the column of the ids contains nulls; leave these rows out"));
    }
    if let Some(texts) = texts(array) {
        return Ok(texts);
    }
    if let Some(bytes) = binaries(array) {
        return Ok(bytes.iter().map(|own| ids::hex(own)).collect());
    }
    let as_text = if array.data_type().is_integer() { cast(array, &DataType::Utf8)? } else { array.clone() };
    texts(&as_text).ok_or_else(|| {
        unfit(&format!(
            "expected ids that are text, integers or bytes, found a column of {}; name the column of the ids with --column",
            array.data_type()
        ))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{BinaryArray, Int32Array, StringArray};
    use arrow::ipc::writer::FileWriter;
    use parquet::arrow::ArrowWriter;
    use parquet::file::properties::WriterProperties;

    use super::*;

    /// Reads parts of a file with these ids.
    fn check(path: &Path, column: Option<&str>, ids: &[String]) {
        let mut file = IdFile::open(path, column).unwrap();
        assert_eq!(file.len(), ids.len() as u64);
        for (start, count) in
            [(0, 1), (2900, 200), (10, 0), (1023, 2), (1024, 1), (0, 3000), (2999, 9), (3000, 1)]
        {
            let expected: Vec<String> =
                ids.iter().skip(start as usize).take(count as usize).cloned().collect();
            assert_eq!(file.read(start, count).unwrap(), expected, "{start}, {count}");
        }
    }

    fn batches(ids: &[String]) -> Vec<RecordBatch> {
        let batch = |ids: &[String]| {
            let names: ArrayRef = Arc::new(StringArray::from_iter_values(ids));
            let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(0..ids.len() as i32));
            let bytes: ArrayRef = Arc::new(BinaryArray::from_iter_values(ids));
            RecordBatch::try_from_iter([("label", numbers), ("id", names), ("hash", bytes)]).unwrap()
        };
        // One of them has no rows.
        let mut found: Vec<RecordBatch> = ids.chunks(700).map(batch).collect();
        found.insert(2, batch(&[]));
        found
    }

    #[test]
    fn parts_of_files_of_each_format_are_read_in_any_order() {
        let dir = tempfile::tempdir().unwrap();
        let ids: Vec<String> = (0..3000).map(|number| format!("images/{number}.jpg")).collect();
        let text = dir.path().join("ids.txt");
        std::fs::write(&text, format!("\n{}\r\n\n{}", ids[0], ids[1..].join("\n"))).unwrap();
        check(&text, None, &ids);
        let (arrow, parquet) = (dir.path().join("ids.arrow"), dir.path().join("ids.parquet"));
        let all = batches(&ids);
        let mut writer = FileWriter::try_new(File::create(&arrow).unwrap(), &all[0].schema()).unwrap();
        for batch in &all {
            writer.write(batch).unwrap();
        }
        writer.finish().unwrap();
        let groups = WriterProperties::builder().set_max_row_group_row_count(Some(1000)).build();
        let file = File::create(&parquet).unwrap();
        let mut writer = ArrowWriter::try_new(file, all[0].schema(), Some(groups)).unwrap();
        for batch in &all {
            writer.write(batch).unwrap();
        }
        writer.close().unwrap();
        for path in [&arrow, &parquet] {
            check(path, None, &ids);
            let mut numbers = IdFile::open(path, Some("label")).unwrap();
            assert_eq!(numbers.read(699, 2).unwrap(), ["699", "0"]);
            let mut bytes = IdFile::open(path, Some("hash")).unwrap();
            assert_eq!(bytes.read(0, 1).unwrap(), [ids::hex(ids[0].as_bytes())]);
            let error = IdFile::open(path, Some("name")).err().unwrap().message;
            assert!(error.ends_with("no column `name`; its columns are label, id, hash"), "{error}");
        }
        std::fs::write(&arrow, &std::fs::read(&arrow).unwrap()[..500]).unwrap();
        assert!(IdFile::open(&arrow, None).is_err());
    }
}
