//! The plan that reads a module: some columns of the rows that pass the filters, segment by segment.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use tcx_store::PinnedRows;

use super::columns;
use super::reader::Reader;
use crate::cache::Cache;

/// The maximum of batches that wait for the caller.
const AHEAD: usize = 1;

/// What a plan reads of a table.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    /// The numbers of the columns, in order.
    pub(crate) columns: Vec<usize>,
    /// What the rows must meet, on the columns of the table.
    pub(crate) filters: Vec<Arc<dyn PhysicalExpr>>,
    /// The most rows of each partition.
    pub(crate) limit: Option<usize>,
}

/// Reads a module, each partition some of its segments.
#[derive(Clone, Debug)]
pub(crate) struct ModuleScan {
    cache: Cache,
    module: String,
    rows: Arc<PinnedRows>,
    selection: Selection,
    /// The numbers of the segments of each partition.
    partitions: Vec<Range<usize>>,
    properties: Arc<PlanProperties>,
    left_out: LeftOut,
}

/// Counts the rows that do not verify.
#[derive(Clone, Debug)]
struct LeftOut {
    /// The most that a run of each partition has met.
    partitions: Arc<[AtomicU64]>,
    /// The most that a scan of the table has met. `None` if no user would learn of it: then the query fails.
    table: Option<Arc<AtomicU64>>,
}

impl ModuleScan {
    /// A plan with the segments of each partition.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such column.
    pub(crate) fn new(
        cache: Cache,
        module: String,
        rows: Arc<PinnedRows>,
        selection: Selection,
        partitions: Vec<Range<usize>>,
    ) -> Result<Self> {
        let schema = Arc::new(columns::schema(rows.spec()).project(&selection.columns)?);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(partitions.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let left_out =
            LeftOut { partitions: partitions.iter().map(|_| AtomicU64::new(0)).collect(), table: None };
        Ok(Self { cache, module, rows, selection, partitions, properties: Arc::new(properties), left_out })
    }

    /// Leaves out rows that do not verify, and counts them for a table. Else they are errors.
    pub(crate) fn counting(mut self, table: Arc<AtomicU64>) -> Self {
        self.left_out.table = Some(table);
        self
    }

    #[cfg(feature = "distributed")]
    pub(super) fn cache(&self) -> &Cache {
        &self.cache
    }

    #[cfg(feature = "distributed")]
    pub(super) fn module(&self) -> &str {
        &self.module
    }

    #[cfg(feature = "distributed")]
    pub(super) fn rows(&self) -> &PinnedRows {
        &self.rows
    }

    #[cfg(feature = "distributed")]
    pub(super) fn selection(&self) -> &Selection {
        &self.selection
    }

    #[cfg(feature = "distributed")]
    pub(super) fn partitions(&self) -> &[Range<usize>] {
        &self.partitions
    }

    /// A scan of each partition.
    #[cfg(feature = "distributed")]
    pub(super) fn split(&self) -> Result<Vec<Arc<dyn ExecutionPlan>>> {
        let one = |partition: &Range<usize>| {
            let (cache, module, rows) = (self.cache.clone(), self.module.clone(), self.rows.clone());
            let scan = Self::new(cache, module, rows, self.selection.clone(), vec![partition.clone()])?;
            Ok(Arc::new(Self {
                left_out: LeftOut { table: self.left_out.table.clone(), ..scan.left_out.clone() },
                ..scan
            }) as Arc<dyn ExecutionPlan>)
        };
        self.partitions.iter().map(one).collect()
    }

    fn table_schema(&self) -> SchemaRef {
        columns::schema(self.rows.spec())
    }
}

/// Segments in parts, with about the same number in each; one part if there are none.
pub(super) fn divided(segments: usize, parts: usize) -> Vec<Range<usize>> {
    let parts = parts.clamp(1, segments.max(1));
    (0..parts).map(|part| part * segments / parts..(part + 1) * segments / parts).collect()
}

impl LeftOut {
    /// # Errors
    ///
    /// Returns an error if no user would learn of it.
    fn add(&self, partition: usize, rows: u64) -> Result<()> {
        let Some(table) = &self.table else {
            let what = format!(
                "{rows} rows of the module do not verify, and would be left out; `tcx verify` says where"
            );
            return Err(DataFusionError::Execution(what));
        };
        self.partitions[partition].fetch_max(rows, Ordering::Relaxed);
        let all = self.partitions.iter().map(|rows| rows.load(Ordering::Relaxed)).sum();
        table.fetch_max(all, Ordering::Relaxed);
        Ok(())
    }
}

impl DisplayAs for ModuleScan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.table_schema();
        let names: Vec<_> =
            self.selection.columns.iter().map(|column| schema.field(*column).name().as_str()).collect();
        let (module, segments) = (&self.module, self.rows.segments());
        write!(f, "ModuleScan: module={module}, segments={segments}, columns=[{}]", names.join(", "))?;
        if !self.selection.filters.is_empty() {
            let filters: Vec<_> = self.selection.filters.iter().map(ToString::to_string).collect();
            write!(f, ", filter={}", filters.join(" AND "))?;
        }
        self.selection.limit.map_or(Ok(()), |limit| write!(f, ", limit={limit}"))
    }
}

impl ExecutionPlan for ModuleScan {
    fn name(&self) -> &'static str {
        "ModuleScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for filter in &self.selection.filters {
            if f(filter)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if children.is_empty() {
            Ok(self)
        } else {
            Err(DataFusionError::Internal("a scan of a module has no inputs".to_owned()))
        }
    }

    fn fetch(&self) -> Option<usize> {
        self.selection.limit
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        let selection = Selection { limit, ..self.selection.clone() };
        Some(Arc::new(Self { selection, ..self.clone() }))
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let segments = self.partitions.get(partition).cloned().ok_or_else(|| {
            DataFusionError::Internal(format!("the scan of {} has no partition {partition}", self.module))
        })?;
        let reader = Reader::new(self.rows.clone(), &self.selection)?;
        let mut builder = RecordBatchReceiverStream::builder(self.schema(), AHEAD);
        let (batches, left_out) = (builder.tx(), self.left_out.clone());
        // DataFusion drops the receiver when it needs no more batches, as for `limit`.
        builder.spawn_blocking(move || {
            let mut rows = 0;
            let leave_out = |more| {
                rows += more;
                left_out.add(partition, rows)
            };
            let is_wanted = || !batches.is_closed();
            reader.read(segments, is_wanted, |batch| batches.blocking_send(Ok(batch)).is_ok(), leave_out)
        });
        Ok(builder.build())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_divided_evenly_and_each_is_in_one_part() {
        let starts_and_ends = |segments, parts| -> Vec<(usize, usize)> {
            divided(segments, parts).into_iter().map(|part| (part.start, part.end)).collect()
        };
        assert_eq!(starts_and_ends(0, 4), [(0, 0)]);
        assert_eq!(starts_and_ends(3, 1), [(0, 3)]);
        assert_eq!(starts_and_ends(3, 8), [(0, 1), (1, 2), (2, 3)]);
        assert_eq!(starts_and_ends(5, 2), [(0, 2), (2, 5)]);
    }
}
