//! Serves a module as a table that DataFusion reads batch by batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use tcx_store::{Inspection, Row};

use super::columns::{self, OF_SAMPLE};

/// The maximum of rows in a batch.
const BATCH: usize = 4096;
const BATCH_BYTES: usize = 32 << 20;
/// The maximum of batches that wait for the caller.
const AHEAD: usize = 1;

/// The live rows of a module.
#[derive(Debug)]
pub(crate) struct ModuleTable {
    inspection: Arc<Inspection>,
    schema: SchemaRef,
    left_out: Arc<AtomicU64>,
}

impl ModuleTable {
    pub(crate) fn new(inspection: Inspection) -> Self {
        let schema = columns::schema(inspection.spec());
        Self { inspection: Arc::new(inspection), schema, left_out: Arc::default() }
    }

    /// Segments whose rows are unknown.
    pub(crate) fn damaged_segments(&self) -> u64 {
        self.inspection.segments().filter(|own| own.state.hides_rows()).count() as u64
    }

    /// Whether every change was verified.
    pub(crate) fn has_sound_changes(&self) -> bool {
        self.inspection.has_sound_changes()
    }

    /// The maximum, over all scans, of rows left out because they do not verify.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl TableProvider for ModuleTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let all = || (0..self.schema.fields().len()).collect();
        let columns = projection.cloned().unwrap_or_else(all);
        let schema = Arc::new(self.schema.project(&columns)?);
        let (inspection, left_out) = (self.inspection.clone(), self.left_out.clone());
        let scan = Arc::new(Scan { inspection, schema: schema.clone(), columns, limit, left_out });
        Ok(Arc::new(StreamingTableExec::try_new(schema, vec![scan], None, [], false, limit)?))
    }
}

/// Some columns of the rows of a module.
#[derive(Clone, Debug)]
struct Scan {
    inspection: Arc<Inspection>,
    schema: SchemaRef,
    columns: Vec<usize>,
    limit: Option<usize>,
    left_out: Arc<AtomicU64>,
}

impl PartitionStream for Scan {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut builder = RecordBatchReceiverStream::builder(self.schema.clone(), AHEAD);
        let (scan, batches) = (self.clone(), builder.tx());
        // DataFusion drops the receiver when it needs no more batches, as for `limit`.
        builder.spawn_blocking(move || scan.read(|batch| batches.blocking_send(Ok(batch)).is_ok()));
        builder.build()
    }
}

impl Scan {
    /// Sends the rows, batch by batch, until the receiver is dropped.
    fn read(&self, mut take: impl FnMut(RecordBatch) -> bool) -> Result<()> {
        let leaves: Vec<usize> =
            self.columns.iter().filter_map(|column| column.checked_sub(OF_SAMPLE)).collect();
        let all = 0..leaves.len();
        let (mut batch, mut bytes, mut left_out): (Vec<Row<'_>>, _, _) = (Vec::new(), 0, 0);
        let mut rows = self.inspection.rows_of(leaves);
        let mut wanted = self.limit.unwrap_or(usize::MAX);
        while wanted > 0
            && let Some(row) = rows.next()
        {
            let Ok(row) = row else {
                left_out += 1;
                self.left_out.fetch_max(left_out, Ordering::Relaxed);
                continue;
            };
            wanted -= 1;
            bytes +=
                row.key.len() + all.clone().filter_map(|leaf| row.leaf(leaf)).map(<[u8]>::len).sum::<usize>();
            batch.push(row);
            if batch.len() == BATCH || bytes >= BATCH_BYTES {
                if !take(self.batch(&batch)?) {
                    return Ok(());
                }
                batch.clear();
                bytes = 0;
            }
        }
        if !batch.is_empty() {
            take(self.batch(&batch)?);
        }
        Ok(())
    }

    fn batch(&self, rows: &[Row<'_>]) -> Result<RecordBatch> {
        let mut place = 0;
        let mut arrays = Vec::new();
        for &column in &self.columns {
            arrays.push(columns::column(self.inspection.spec(), rows, column, place)?);
            place += usize::from(column >= OF_SAMPLE);
        }
        let count = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), arrays, &count)?)
    }
}
