//! A folder with a `.npy` file for each dense column, JSON lines for text, and `ids.txt`: written by `export`, read by
//! `import`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::json;
use tcx_store::{DType, Inspection, Leaf, LeafKind, Row, Spec};

use super::Sink;
use crate::failure::{Code, Failure, Result};
use crate::formats::columns::{narrowed, widened};
use crate::formats::npy::{Reader, VIEWS, Writer, file_name, type_name};
use crate::text::ids;

const IDS: &str = "ids.txt";
/// The module and the digest of its identity.
const ABOUT: &str = "tcx.json";

pub(crate) struct Folder {
    path: PathBuf,
    spec: Spec,
    ids: BufWriter<File>,
    views: Vec<u32>,
    columns: Vec<Column>,
}

enum Column {
    Dense(DType, Writer),
    Text(BufWriter<File>),
}

impl Folder {
    pub(crate) fn create(path: &Path, inspection: &Inspection) -> Result<Self> {
        let spec = inspection.spec().clone();
        let failed = |error: io::Error| Failure::file("write into", path, &error);
        spec.leaves().iter().try_for_each(fits)?;
        std::fs::create_dir(path).map_err(failed)?;
        let about = json!({"module": spec.module_id(), "digest": inspection.digest()});
        std::fs::write(path.join(ABOUT), format!("{about:#}\n")).map_err(failed)?;
        let columns = spec.leaves().iter().map(|leaf| {
            let file = path.join(file_name(&leaf.name, &leaf.kind)?);
            Ok(match &leaf.kind {
                LeafKind::Dense { dtype, shape } => {
                    Column::Dense(*dtype, Writer::create(&file, type_name(*dtype), shape).map_err(failed)?)
                }
                _ => Column::Text(BufWriter::new(File::create_new(&file).map_err(failed)?)),
            })
        });
        let columns = columns.collect::<Result<_>>()?;
        let ids = BufWriter::new(File::create_new(path.join(IDS)).map_err(failed)?);
        Ok(Self { path: path.to_owned(), spec, ids, views: Vec::new(), columns })
    }
}

/// Fails if a column is neither an array nor text.
fn fits(leaf: &Leaf) -> Result<()> {
    match leaf.kind {
        LeafKind::Dense { .. } | LeafKind::Text if !leaf.optional => Ok(()),
        _ => {
            let message = format!(
                "the output `{}`, {}, is not an array; export to Parquet or Arrow",
                leaf.name,
                leaf.described()
            );
            Err(Failure::new(Code::Unfit, message))
        }
    }
}

impl Sink for Folder {
    fn write(&mut self, rows: &[Row<'_>]) -> Result<()> {
        for row in rows {
            let id = ids::show(self.spec.key_type(), row.key);
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
            let file = path.join(file_name(&leaf.name, &leaf.kind)?);
            let source = if let LeafKind::Dense { dtype, shape } = &leaf.kind {
                let reader = Reader::open(&file, type_name(*dtype), shape)?;
                same_rows(&file, reader.rows, ids.len())?;
                ColumnSource::Dense(*dtype, reader)
            } else {
                let opened = File::open(&file).map_err(|error| Failure::file("read", &file, &error))?;
                ColumnSource::Text(file, BufReader::new(opened).lines())
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
                let bytes = reader.next(rows).map_err(|error| unfit(&error.to_string()))?;
                let bytes = if *dtype == DType::BF16 {
                    narrowed(&bytes)
                        .ok_or_else(|| unfit("expected values that are exact in bf16, found another"))?
                } else {
                    bytes
                };
                if *dtype == DType::Bool && bytes.iter().any(|byte| *byte > 1) {
                    return Err(unfit("expected booleans 0 and 1, found another byte"));
                }
                let width = bytes.len() / rows;
                Ok((0..rows).map(|row| Some(bytes[row * width..][..width].to_vec())).collect())
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
