//! Reads and writes `.npy` files.
//!
//! The writer is our own: rows arrive one by one and their number is known only at the end, when it rewrites the header.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

use npyz::{Order, TypeChar};
use tcx_store::{DType, LeafKind};

use crate::failure::{Code, Failure, Result};

/// Bytes of the header, which is rewritten when the number of rows is known.
const HEADER: usize = 128;

/// The name of a dtype in numpy; bf16, which numpy lacks, is written as f32.
pub(crate) fn type_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 => "<f2",
        DType::F64 => "<f8",
        DType::I8 => "|i1",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::U8 => "|u1",
        DType::Bool => "|b1",
        _ => "<f4",
    }
}

/// Writes an array row by row.
pub(crate) struct Writer {
    out: BufWriter<File>,
    type_name: &'static str,
    shape: Vec<usize>,
    rows: usize,
}

impl Writer {
    pub(crate) fn create(path: &Path, type_name: &'static str, shape: &[usize]) -> io::Result<Self> {
        let mut out = BufWriter::new(File::create_new(path)?);
        out.write_all(&[0; HEADER])?;
        Ok(Self { out, type_name, shape: shape.to_vec(), rows: 0 })
    }

    pub(crate) fn row(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.rows(bytes, 1)
    }

    /// Writes this number of rows.
    pub(crate) fn rows(&mut self, bytes: &[u8], count: usize) -> io::Result<()> {
        self.rows += count;
        self.out.write_all(bytes)
    }

    /// The number of rows written.
    pub(crate) fn count(&self) -> usize {
        self.rows
    }

    pub(crate) fn finish(mut self) -> io::Result<()> {
        let dims = self.shape.iter().map(|dim| format!(" {dim},")).collect::<Vec<_>>().concat();
        let (kind, rows) = (self.type_name, self.rows);
        let text = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({rows},{dims}), }}");
        // Magic, version 1.0, the length of the rest, which ends with a line feed.
        let mut header = b"\x93NUMPY\x01\x00".to_vec();
        header.extend_from_slice(&((HEADER - 10) as u16).to_le_bytes());
        header.extend_from_slice(text.as_bytes());
        if header.len() >= HEADER {
            return Err(io::Error::other("too many dimensions"));
        }
        header.resize(HEADER - 1, b' ');
        header.push(b'\n');
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(&header)?;
        self.out.flush()?;
        self.out.get_ref().sync_all()
    }
}

/// Reads an array.
pub(crate) struct Reader {
    file: io::BufReader<File>,
    width: usize,
    pub(crate) rows: usize,
}

impl Reader {
    /// Opens an array of rows of this type and shape.
    ///
    /// # Errors
    ///
    /// Returns an error if the file does not exist or contains another array.
    pub(crate) fn open(path: &Path, type_name: &str, shape: &[usize]) -> Result<Self> {
        let unreadable = |error: io::Error| Failure::file("read", path, &error);
        let mut file = io::BufReader::new(File::open(path).map_err(unreadable)?);
        let header = npyz::NpyHeader::from_reader(&mut file).map_err(unreadable)?;
        let npyz::DType::Plain(found) = header.dtype() else {
            return Err(unfit(path, type_name, shape, "records"));
        };
        let dims = header.shape();
        let rows = dims.first().and_then(|rows| usize::try_from(*rows).ok());
        let same = dims.len() == shape.len() + 1 && dims[1..].iter().zip(shape).all(|(a, b)| *a == *b as u64);
        let (true, Some(rows), Order::C) = (same && found.to_string() == type_name, rows, header.order())
        else {
            let order = if header.order() == Order::C { "" } else { " in Fortran order" };
            return Err(unfit(path, type_name, shape, &format!("{found} {dims:?}{order}")));
        };
        let size = match found.type_char() {
            TypeChar::Bool => 1,
            _ => usize::try_from(found.size_field()).unwrap_or(0),
        };
        let width = shape.iter().fold(size, |product, dim| product.saturating_mul(*dim));
        // No memory is reserved for rows that the file only claims to have.
        let start = file.stream_position().map_err(unreadable)?;
        let bytes = file.get_ref().metadata().map_err(unreadable)?.len().saturating_sub(start);
        if bytes < rows.saturating_mul(width) as u64 {
            let message =
                format!("{}: expected {rows} rows of {width} bytes, found {bytes} bytes", path.display());
            return Err(Failure::new(Code::Unfit, message));
        }
        Ok(Self { file, width, rows })
    }

    /// The bytes of the next rows.
    pub(crate) fn next(&mut self, rows: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; rows * self.width];
        io::Read::read_exact(&mut self.file, &mut bytes)?;
        Ok(bytes)
    }
}

fn unfit(path: &Path, type_name: &str, shape: &[usize], found: &str) -> Failure {
    let dims = shape.iter().map(|dim| format!(", {dim}")).collect::<Vec<_>>().concat();
    let message = format!("{}: expected an array {type_name} [rows{dims}], found {found}", path.display());
    Failure::new(Code::Unfit, message)
}

/// The file of the rows' views.
pub(crate) const VIEWS: &str = "views.npy";

/// The file name of a column. A leaf of an untrusted cache must not name a path outside the folder.
///
/// # Errors
///
/// Returns an error if the leaf cannot name a plain file.
pub(crate) fn file_name(leaf: &str, kind: &LeafKind) -> Result<String> {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    if leaf.starts_with('.') || !leaf.chars().all(is_plain) || leaf.is_empty() {
        return Err(Failure::new(
            Code::Unfit,
            format!("the column {leaf:?} cannot name a file; export to Arrow"),
        ));
    }
    let name = match kind {
        LeafKind::Text => format!("{leaf}.jsonl"),
        LeafKind::Dense { .. } => format!("{leaf}.npy"),
        _ => format!("{leaf}.values.npy"),
    };
    Ok(if name == VIEWS { "views (output).npy".to_owned() } else { name })
}

/// The file of the places where the rows of a column begin, beside the file of its values.
pub(crate) fn offsets_name(values: &str) -> String {
    values.replace(".values.npy", ".offsets.npy")
}
