//! The rows of an answer, in order.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use tokio::runtime::Runtime;

use super::value::{Value, value};
use crate::error::Result;
use crate::tables::catalog::Modules;

/// A column of an answer.
///
/// ```
/// let dir = tempfile::tempdir()?;
/// let database = tcx_sql::Database::open(dir.path())?;
/// let answer = database.query("select 1 + 1 as two")?;
/// assert_eq!((answer.columns()[0].name.as_str(), answer.columns()[0].data_type.as_str()), ("two", "Int64"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type, as Arrow calls it.
    pub data_type: String,
}

/// An iterator over the rows of an answer, each with a value for each column. It reads rows on demand.
///
/// ```
/// use tcx_sql::{Database, Value};
///
/// let dir = tempfile::tempdir()?;
/// let database = Database::open(dir.path())?;
/// let rows: Result<Vec<_>, _> = database.query("values (1), (2), (3)")?.collect();
/// assert_eq!(rows?[2], [Value::Int(3)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Answer<'a> {
    runtime: &'a Runtime,
    stream: SendableRecordBatchStream,
    columns: Vec<Column>,
    batch: Option<RecordBatch>,
    row: usize,
    modules: Arc<Modules>,
}

impl<'a> Answer<'a> {
    pub(crate) fn new(
        runtime: &'a Runtime,
        stream: SendableRecordBatchStream,
        modules: Arc<Modules>,
    ) -> Self {
        let schema = stream.schema();
        let columns = schema.fields().iter();
        let columns = columns
            .map(|field| Column { name: field.name().clone(), data_type: field.data_type().to_string() });
        Self { runtime, columns: columns.collect(), stream, batch: None, row: 0, modules }
    }

    /// The columns.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The number of rows left out so far, because a column of the query does not verify.
    pub fn left_out(&self) -> u64 {
        self.modules.left_out()
    }

    /// The number of segments whose rows are left out: those of the queried modules that are damaged, unreadable, or depend
    /// on a missing change.
    pub fn damaged_segments(&self) -> u64 {
        self.modules.damaged_segments()
    }

    /// Whether every change of the queried modules was verified. Rows before a change that was not are left out.
    pub fn has_sound_changes(&self) -> bool {
        self.modules.has_sound_changes()
    }

    /// The next row; `None` at the end.
    fn read(&mut self) -> Result<Option<Vec<Value>>> {
        loop {
            if let Some(batch) = self.batch.as_ref().filter(|batch| self.row < batch.num_rows()) {
                let row =
                    batch.columns().iter().map(|array| value(array, self.row)).collect::<Result<_, _>>()?;
                self.row += 1;
                return Ok(Some(row));
            }
            match self.runtime.block_on(self.stream.next()).transpose()? {
                Some(batch) => (self.batch, self.row) = (Some(batch), 0),
                None => return Ok(None),
            }
        }
    }
}

impl Iterator for Answer<'_> {
    type Item = Result<Vec<Value>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

impl fmt::Debug for Answer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("columns", &self.columns).finish_non_exhaustive()
    }
}
