//! Opens a file of record batches for `import`: Arrow, an Arrow stream, or Parquet.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use arrow::error::ArrowError;
use arrow::ipc::reader::{FileReader, StreamReader};
use arrow::record_batch::RecordBatchReader;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::failure::{Code, Failure, Result};

/// The key of the identity's digest in the schema of an export.
const IDENTITY: &str = "tcx.identity";

/// An open file of record batches.
pub(crate) struct Batches {
    pub(crate) reader: Box<dyn RecordBatchReader>,
    /// The digest of the identity that the file names.
    pub(crate) identity: Option<String>,
}

impl Batches {
    /// Opens a file and detects the format by its first bytes.
    ///
    /// # Errors
    ///
    /// Returns an error if the file does not exist, is damaged, or has another format.
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
            _ => Err("neither Parquet nor Arrow; convert it, or name a folder of .npy files".to_owned()),
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

/// Some of these readers panic on a damaged file: that becomes an error.
pub(crate) fn guarded<T>(read: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, String> {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let read = catch_unwind(AssertUnwindSafe(read));
    std::panic::set_hook(hook);
    match read {
        Ok(read) => read.map_err(|error| error.to_string()),
        Err(_) => Err("the file is damaged".to_owned()),
    }
}
