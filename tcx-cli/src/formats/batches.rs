//! A file of record batches that `import` reads: Arrow, an Arrow stream, or Parquet.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use arrow::error::ArrowError;
use arrow::ipc::reader::{FileReader, StreamReader};
use arrow::record_batch::RecordBatchReader;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::failure::{Code, Failure, Result};

/// How the schema of an export calls the digest of the rows' identity.
const IDENTITY: &str = "tcx.identity";

/// A file that is being read.
pub(crate) struct Batches {
    pub(crate) reader: Box<dyn RecordBatchReader>,
    /// The digest that the file says its rows are of.
    pub(crate) identity: Option<String>,
}

impl Batches {
    /// Opens a file; its first bytes tell the format.
    ///
    /// # Errors
    ///
    /// A file that is not there, is damaged, or is none of these.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let failed = |error| Failure::file("read", path, &error);
        let unfit = |what: String| Failure::new(Code::Unfit, format!("{}: {what}", path.display()));
        let mut file = File::open(path).map_err(failed)?;
        let mut start = Vec::new();
        file.by_ref().take(8).read_to_end(&mut start).map_err(failed)?;
        file.rewind().map_err(failed)?;
        let opened = match start.as_slice() {
            [b'P', b'A', b'R', b'1', ..] => guarded(|| Self::parquet(file)),
            [b'A', b'R', b'R', b'O', b'W', b'1', ..] => guarded(|| Self::arrow(file)),
            [0xff, 0xff, 0xff, 0xff, ..] => guarded(|| Self::stream(file)),
            _ => {
                Err("it is neither Parquet nor Arrow: convert it, or name a folder of .npy files".to_owned())
            }
        };
        opened.map_err(unfit)
    }

    fn parquet(file: File) -> Result<Self, ArrowError> {
        let builder = ParquetRecordBatchReaderBuilder::try_new(file)?;
        let identity = builder.schema().metadata().get(IDENTITY).cloned();
        Ok(Self { reader: Box::new(builder.build()?), identity })
    }

    fn arrow(file: File) -> Result<Self, ArrowError> {
        let reader = FileReader::try_new(BufReader::new(file), None)?;
        let identity = reader.schema().metadata().get(IDENTITY).cloned();
        Ok(Self { reader: Box::new(reader), identity })
    }

    fn stream(file: File) -> Result<Self, ArrowError> {
        let reader = StreamReader::try_new(BufReader::new(file), None)?;
        let identity = reader.schema().metadata().get(IDENTITY).cloned();
        Ok(Self { reader: Box::new(reader), identity })
    }
}

/// A damaged file makes some of these readers panic: that is an error of the file.
pub(crate) fn guarded<T>(read: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, String> {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let read = catch_unwind(AssertUnwindSafe(read));
    std::panic::set_hook(hook);
    match read {
        Ok(read) => read.map_err(|error| error.to_string()),
        Err(_) => Err("it is damaged".to_owned()),
    }
}
