//! Reads the rows of a scan: at first the columns of the filters, then the other columns of the rows that pass them.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{BooleanArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::cast::as_boolean_array;
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::{collect_columns, conjunction_opt, reassign_expr_columns};
use tcx_store::{KeyBatch, PinnedRows, Row};

use super::columns::{self, OF_SAMPLE};
use super::scan::Selection;

/// Reads the rows of a scan.
pub(super) struct Reader {
    rows: Arc<PinnedRows>,
    output: Columns,
    filter: Option<Filter>,
    limit: usize,
}

/// Some columns of a module.
struct Columns {
    schema: SchemaRef,
    numbers: Vec<usize>,
    /// The leaves among them, in order.
    leaves: Vec<usize>,
}

/// What rows must meet.
struct Filter {
    columns: Columns,
    /// On these columns.
    predicate: Arc<dyn PhysicalExpr>,
}

impl Columns {
    fn new(table: &SchemaRef, numbers: Vec<usize>) -> Result<Self> {
        let leaves = numbers.iter().filter_map(|column| column.checked_sub(OF_SAMPLE)).collect();
        Ok(Self { schema: Arc::new(table.project(&numbers)?), numbers, leaves })
    }
}

impl Reader {
    /// # Errors
    ///
    /// Returns an error if the filters name columns that the table does not have.
    pub(super) fn new(rows: Arc<PinnedRows>, selection: &Selection) -> Result<Self> {
        let table = columns::schema(rows.spec());
        let filter = |predicate| -> Result<Filter> {
            let mut numbers: Vec<usize> = collect_columns(&predicate).iter().map(Column::index).collect();
            numbers.sort_unstable();
            numbers.dedup();
            let columns = Columns::new(&table, numbers)?;
            let predicate = reassign_expr_columns(predicate, &columns.schema)?;
            Ok(Filter { columns, predicate })
        };
        let filter = conjunction_opt(selection.filters.iter().cloned()).map(filter).transpose()?;
        let output = Columns::new(&table, selection.columns.clone())?;
        Ok(Self { rows, output, filter, limit: selection.limit.unwrap_or(usize::MAX) })
    }

    /// Calls `take` with the rows of these segments, batch by batch, until it returns `false` or they are not wanted any more, and `leave_out`
    /// with the number of rows that do not verify.
    ///
    /// # Errors
    ///
    /// Returns an error if rows cannot be read now, if pinned ones are not there any more, or if a filter fails; and that of `leave_out`.
    pub(super) fn read(
        &self,
        segments: Range<usize>,
        is_wanted: impl Fn() -> bool,
        mut take: impl FnMut(RecordBatch) -> bool,
        mut leave_out: impl FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let mut wanted = self.limit;
        for segment in segments {
            if wanted == 0 {
                return Ok(());
            }
            for keys in self.rows.keys_of(segment).map_err(external)? {
                if wanted == 0 || !is_wanted() {
                    return Ok(());
                }
                let keys = keys.map_err(external)?;
                let mut left_out = keys.damaged() as u64;
                let mut chosen = &*self.chosen(&keys, &mut left_out)?;
                // More than once only if rows do not verify in whose place others are to come.
                while wanted > 0 && !chosen.is_empty() {
                    let (next, rest) = chosen.split_at(wanted.min(chosen.len()));
                    let (_, rows) = verified(&keys, next, &self.output.leaves, &mut left_out)?;
                    wanted -= rows.len();
                    chosen = rest;
                    if !rows.is_empty() && !take(self.batch(&self.output, &rows)?) {
                        return Ok(());
                    }
                }
                if left_out > 0 {
                    leave_out(left_out)?;
                }
            }
        }
        Ok(())
    }

    /// The numbers of the rows that pass the filters.
    fn chosen(&self, keys: &KeyBatch<'_>, left_out: &mut u64) -> Result<Vec<usize>> {
        let all: Vec<usize> = (0..keys.len()).collect();
        let Some(Filter { columns, predicate }) = &self.filter else { return Ok(all) };
        let (numbers, rows) = verified(keys, &all, &columns.leaves, left_out)?;
        let passed = predicate.evaluate(&self.batch(columns, &rows)?)?.into_array(rows.len())?;
        let passed: &BooleanArray = as_boolean_array(&passed)?;
        // Null is no pass.
        let passed = passed.iter().map(|passed| passed == Some(true));
        Ok(numbers.into_iter().zip(passed).filter_map(|(number, passed)| passed.then_some(number)).collect())
    }

    fn batch(&self, columns: &Columns, rows: &[Row<'_>]) -> Result<RecordBatch> {
        let (mut place, mut arrays) = (0, Vec::new());
        for &column in &columns.numbers {
            arrays.push(columns::column(self.rows.spec(), rows, column, place)?);
            place += usize::from(column >= OF_SAMPLE);
        }
        let count = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        Ok(RecordBatch::try_new_with_options(columns.schema.clone(), arrays, &count)?)
    }
}

/// Those of these rows that verify, with their numbers; the others are counted.
fn verified<'a>(
    keys: &'a KeyBatch<'_>,
    numbers: &[usize],
    leaves: &[usize],
    left_out: &mut u64,
) -> Result<(Vec<usize>, Vec<Row<'a>>)> {
    let read = numbers.iter().zip(keys.read(numbers, leaves).map_err(external)?);
    let read: (Vec<_>, Vec<_>) = read.filter_map(|(number, row)| Some((*number, row?))).unzip();
    *left_out += (numbers.len() - read.0.len()) as u64;
    Ok(read)
}

fn external(error: tcx_store::Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
