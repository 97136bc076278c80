//! A folder with a `.npy` file for each dense column, values and offsets for columns whose rows differ in length, JSON lines for
//! text, and `ids.txt`: written by `export`, read by `import`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::json;
use tcx_store::{DType, DYNAMIC_DIM, Leaf, LeafKind, Row, Spec};

use super::Sink;
use crate::failure::{Code, Failure, Result};
use crate::formats::columns::{narrowed, widened};
use crate::formats::npy::{Reader, VIEWS, Writer, file_name, offsets_name, type_name};
use crate::formats::selection::{Chosen, Selection};
use crate::text::ids;

const IDS: &str = "ids.txt";
/// The type of offsets, 64-bit integers.
const OFFSETS: &str = "<i8";
/// The module and the digest of its identity.
const ABOUT: &str = "tcx.json";

pub(crate) struct Folder {
    path: PathBuf,
    selection: Selection,
    ids: BufWriter<File>,
    views: Vec<u32>,
    columns: Vec<Column>,
}

enum Column {
    Dense(DType, Writer),
    Varying(Varying, Writer, Writer),
    Text(BufWriter<File>),
}

/// How the rows of a column that differ in length lie in the file of its values, one after the other.
#[derive(Clone, Debug)]
struct Varying {
    dtype: DType,
    /// The shape of an item, which the offsets count: all dimensions but the first, if it alone varies; else one element.
    item: Vec<usize>,
}

impl Varying {
    fn of(kind: &LeafKind) -> Option<Self> {
        match kind {
            LeafKind::Ragged { dtype, shape } => {
                let item = shape.get(1..).unwrap_or_default();
                let item = if item.contains(&DYNAMIC_DIM) { Vec::new() } else { item.to_vec() };
                Some(Self { dtype: *dtype, item })
            }
            LeafKind::Bytes => Some(Self { dtype: DType::U8, item: Vec::new() }),
            _ => None,
        }
    }

    /// The bytes of an item in the cache.
    fn width(&self) -> usize {
        self.item.iter().product::<usize>() * self.dtype.size()
    }
}

impl Folder {
    pub(crate) fn create(path: &Path, selection: Selection) -> Result<Self> {
        let failed = |error: io::Error| Failure::file("write into", path, &error);
        selection.outputs.iter().try_for_each(|output| fits(&output.leaf))?;
        std::fs::create_dir(path).map_err(failed)?;
        std::fs::write(path.join(ABOUT), format!("{:#}\n", about(&selection))).map_err(failed)?;
        let columns = selection.outputs.iter().map(|output| {
            let leaf = &output.leaf;
            let name = file_name(&leaf.name, &leaf.kind)?;
            let file = path.join(&name);
            Ok(match (&leaf.kind, Varying::of(&leaf.kind)) {
                (_, Some(varying)) => {
                    let values = Writer::create(&file, type_name(varying.dtype), &varying.item);
                    let offsets = Writer::create(&path.join(offsets_name(&name)), OFFSETS, &[]);
                    let mut offsets = offsets.map_err(failed)?;
                    offsets.row(&0_i64.to_le_bytes()).map_err(failed)?;
                    Column::Varying(varying, values.map_err(failed)?, offsets)
                }
                (LeafKind::Dense { dtype, shape }, _) => {
                    Column::Dense(*dtype, Writer::create(&file, type_name(*dtype), shape).map_err(failed)?)
                }
                _ => Column::Text(BufWriter::new(File::create_new(&file).map_err(failed)?)),
            })
        });
        let columns = columns.collect::<Result<_>>()?;
        let ids = BufWriter::new(File::create_new(path.join(IDS)).map_err(failed)?);
        Ok(Self { path: path.to_owned(), selection, ids, views: Vec::new(), columns })
    }
}

/// The module, its identity, and the names of variants, which arrays do not have.
fn about(selection: &Selection) -> serde_json::Value {
    let named = |output: &Chosen| {
        output.variants.as_ref().map(|variants| (output.leaf.name.clone(), variants.json().into()))
    };
    let variants: serde_json::Map<_, _> = selection.outputs.iter().filter_map(named).collect();
    let mut about = json!({"module": selection.module, "digest": selection.digest});
    if !variants.is_empty() {
        about["variants"] = variants.into();
    }
    about
}

/// Fails if a column cannot be written: an array has no absent values.
fn fits(leaf: &Leaf) -> Result<()> {
    if !leaf.optional {
        return Ok(());
    }
    let message = format!(
        "the output `{}`, {}, is not an array, since it may be absent; export to Parquet or Arrow, or leave it out with --fields",
        leaf.name,
        leaf.described()
    );
    Err(Failure::new(Code::Unfit, message))
}

impl Sink for Folder {
    fn write(&mut self, rows: &[Row<'_>]) -> Result<()> {
        for row in rows {
            let id = ids::show(self.selection.key_type, row.key);
            if id.contains(['\n', '\r']) {
                let message = format!("the id {id:?} contains a line break; export to Arrow");
                return Err(Failure::new(Code::Unfit, message));
            }
            writeln!(self.ids, "{id}")?;
            self.views.push(row.view);
            for (number, column) in self.columns.iter_mut().enumerate() {
                let bytes = row.leaf(number).unwrap_or_default();
                match column {
                    Column::Dense(DType::BF16, writer) => writer.row(&widened(bytes))?,
                    Column::Dense(_, writer) => writer.row(bytes)?,
                    Column::Varying(varying, values, offsets) => {
                        let items = bytes.len() / varying.width();
                        match varying.dtype {
                            DType::BF16 => values.rows(&widened(bytes), items)?,
                            _ => values.rows(bytes, items)?,
                        }
                        offsets.row(&(values.count() as i64).to_le_bytes())?;
                    }
                    Column::Text(writer) => writeln!(writer, "{}", json!(String::from_utf8_lossy(bytes)))?,
                }
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.ids.flush()?;
        if self.views.iter().any(|view| *view != 0) {
            let mut writer = Writer::create(&self.path.join(VIEWS), "<u4", &[])?;
            self.views.iter().try_for_each(|view| writer.row(&view.to_le_bytes()))?;
            writer.finish()?;
        }
        for column in self.columns {
            match column {
                Column::Dense(_, writer) => writer.finish()?,
                Column::Varying(_, values, offsets) => {
                    values.finish()?;
                    offsets.finish()?;
                }
                Column::Text(mut writer) => writer.flush()?,
            }
        }
        Ok(())
    }
}

/// Reads a folder.
pub(crate) struct FolderReader {
    ids: Vec<String>,
    views: Vec<u32>,
    columns: Vec<(Leaf, ColumnSource)>,
    at: usize,
}

enum ColumnSource {
    Dense(DType, Reader),
    /// The items of each row, the first row last.
    Varying(Varying, Reader, Vec<usize>),
    Text(PathBuf, io::Lines<BufReader<File>>),
}

/// Some rows: their keys, their views, and the bytes of each leaf.
pub(crate) struct Part {
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) views: Vec<u32>,
    pub(crate) leaves: Vec<Vec<Option<Vec<u8>>>>,
}

impl FolderReader {
    pub(crate) fn open(path: &Path, spec: &Spec) -> Result<Self> {
        let ids = ids::read_each(&path.join(IDS))?;
        let views = path.join(VIEWS);
        let views = if views.exists() { read_views(&views, ids.len())? } else { vec![0; ids.len()] };
        let columns = spec.leaves().iter().map(|leaf| {
            fits(leaf)?;
            let name = file_name(&leaf.name, &leaf.kind)?;
            let file = path.join(&name);
            let source = match (&leaf.kind, Varying::of(&leaf.kind)) {
                (_, Some(varying)) => {
                    let reader = Reader::open(&file, type_name(varying.dtype), &varying.item)?;
                    let lengths = read_lengths(&path.join(offsets_name(&name)), ids.len(), reader.rows)?;
                    ColumnSource::Varying(varying, reader, lengths)
                }
                (LeafKind::Dense { dtype, shape }, _) => {
                    let reader = Reader::open(&file, type_name(*dtype), shape)?;
                    same_rows(&file, reader.rows, ids.len())?;
                    ColumnSource::Dense(*dtype, reader)
                }
                _ => {
                    let opened = File::open(&file).map_err(|error| Failure::file("read", &file, &error))?;
                    ColumnSource::Text(file, BufReader::new(opened).lines())
                }
            };
            Ok((leaf.clone(), source))
        });
        Ok(Self { columns: columns.collect::<Result<_>>()?, ids, views, at: 0 })
    }

    /// The digest of the identity that the folder names.
    pub(crate) fn digest(path: &Path) -> Option<String> {
        let about = std::fs::read(path.join(ABOUT)).ok()?;
        let about: serde_json::Value = serde_json::from_slice(&about).ok()?;
        about.get("digest")?.as_str().map(str::to_owned)
    }

    pub(crate) fn rows(&self) -> usize {
        self.ids.len()
    }

    /// The next rows, at most `most`; `None` at the end.
    pub(crate) fn next(&mut self, spec: &Spec, most: usize) -> Result<Option<Part>> {
        let range = self.at..(self.at + most).min(self.ids.len());
        if range.is_empty() {
            return Ok(None);
        }
        self.at = range.end;
        let keys = self.ids[range.clone()].iter().map(|id| ids::parse(spec.key_type(), id));
        let keys = keys.collect::<Result<_>>()?;
        let is_last = self.at == self.ids.len();
        let leaves = self.columns.iter_mut().map(|(leaf, source)| {
            let rows = source.next(leaf, range.len())?;
            if is_last {
                source.check_end(leaf)?;
            }
            Ok(rows)
        });
        Ok(Some(Part {
            keys,
            views: self.views[range.clone()].to_vec(),
            leaves: leaves.collect::<Result<_>>()?,
        }))
    }
}

impl ColumnSource {
    /// Fails if lines are left: then rows and ids do not correspond.
    fn check_end(&mut self, leaf: &Leaf) -> Result<()> {
        let Self::Text(_, lines) = self else { return Ok(()) };
        if lines.next().is_none() {
            return Ok(());
        }
        let what =
            format!("column `{}`: expected one line for each id in ids.txt, found more lines", leaf.name);
        Err(Failure::new(Code::Unfit, what))
    }

    fn next(&mut self, leaf: &Leaf, rows: usize) -> Result<Vec<Option<Vec<u8>>>> {
        let unfit = |what: &str| Failure::new(Code::Unfit, format!("column `{}`: {what}", leaf.name));
        match self {
            Self::Dense(dtype, reader) => {
                let bytes = elements(*dtype, reader, rows).map_err(|what| unfit(&what))?;
                let width = bytes.len() / rows;
                Ok((0..rows).map(|row| Some(bytes[row * width..][..width].to_vec())).collect())
            }
            Self::Varying(varying, reader, lengths) => {
                let row = |_| {
                    let items = lengths.pop().unwrap_or(0);
                    elements(varying.dtype, reader, items).map(Some).map_err(|what| unfit(&what))
                };
                (0..rows).map(row).collect()
            }
            Self::Text(path, lines) => {
                let line = |_| {
                    let line = lines.next().ok_or_else(|| {
                        unfit("expected one line for each id in ids.txt, found fewer lines")
                    })?;
                    let line = line.map_err(|error| Failure::file("read", path, &error))?;
                    let text: String = serde_json::from_str(&line)
                        .map_err(|error| unfit(&format!("expected one JSON string per line: {error}")))?;
                    Ok(Some(text.into_bytes()))
                };
                (0..rows).map(line).collect()
            }
        }
    }
}

/// The bytes of the next rows of an array, as the cache has them.
fn elements(dtype: DType, reader: &mut Reader, rows: usize) -> Result<Vec<u8>, String> {
    let bytes = reader.next(rows).map_err(|error| error.to_string())?;
    let bytes = match dtype {
        DType::BF16 => narrowed(&bytes).ok_or("expected values that are exact in bf16, found another")?,
        _ => bytes,
    };
    match dtype {
        DType::Bool if bytes.iter().any(|byte| *byte > 1) => {
            Err("expected booleans 0 and 1, found another byte".to_owned())
        }
        _ => Ok(bytes),
    }
}

/// The number of items of each row, the first row last.
fn read_lengths(path: &Path, rows: usize, items: usize) -> Result<Vec<usize>> {
    let mut reader = Reader::open(path, OFFSETS, &[])?;
    same_rows(path, reader.rows, rows + 1)?;
    let offsets: Vec<i64> =
        reader.next(rows + 1)?.as_chunks().0.iter().map(|offset| i64::from_le_bytes(*offset)).collect();
    let ends = (offsets.first(), offsets.last());
    if ends != (Some(&0), i64::try_from(items).ok().as_ref()) || !offsets.is_sorted() {
        let what = format!("{}: expected offsets that ascend from 0 to {items}", path.display());
        return Err(Failure::new(Code::Unfit, what));
    }
    Ok(offsets.array_windows().map(|[start, end]| (end - start) as usize).rev().collect())
}

fn read_views(path: &Path, ids: usize) -> Result<Vec<u32>> {
    let mut reader = Reader::open(path, "<u4", &[])?;
    same_rows(path, reader.rows, ids)?;
    let bytes = reader.next(ids)?;
    Ok(bytes.chunks_exact(4).filter_map(|view| view.try_into().ok()).map(u32::from_le_bytes).collect())
}

fn same_rows(path: &Path, rows: usize, ids: usize) -> Result<()> {
    if rows == ids {
        return Ok(());
    }
    Err(Failure::new(
        Code::Unfit,
        format!("{}: expected {ids} rows, one for each id in ids.txt, found {rows}", path.display()),
    ))
}
