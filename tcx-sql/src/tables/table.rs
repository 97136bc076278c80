//! A module as a table.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use tcx_store::PinnedRows;

use super::columns;
use super::scan::{ModuleScan, Selection, divided};
use crate::cache::Cache;

/// The live rows of a module at the moment when it was opened, as a table of DataFusion: a column `id`, a column `view`, and one for each
/// output. Only the columns that a query names are read, and of the rows that its filters leave out only the columns of the filters.
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// # let store = Store::open(dir.path(), spec, &Options::default())?;
/// # let mut rows = store.lookup(Keys::ints([1, 2], 0))?;
/// # store.insert(&mut rows, &[0, 1], vec![Column::dense(&[10, 20])])?;
/// # store.flush()?;
/// use std::sync::Arc;
///
/// use datafusion::prelude::SessionContext;
/// use tcx_sql::{Cache, ModuleTable};
///
/// let table = ModuleTable::open(&Cache::at(dir.path())?, "m_v1")?;
/// let context = SessionContext::new();
/// context.register_table("features", Arc::new(table))?;
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// let found = context.sql("select value from features where id = 2").await?.collect().await?;
/// assert_eq!(found[0].num_rows(), 1);
/// # datafusion::error::Result::Ok(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ModuleTable {
    cache: Cache,
    module: String,
    rows: Arc<PinnedRows>,
    schema: SchemaRef,
    left_out: Arc<AtomicU64>,
}

impl ModuleTable {
    /// The table of a module.
    ///
    /// # Errors
    ///
    /// Returns an error if the module does not exist or cannot be read.
    pub fn open(cache: &Cache, module: &str) -> tcx_store::Result<Self> {
        let rows = cache.rows(module, None)?;
        let schema = columns::schema(rows.spec());
        let (cache, module) = (cache.clone(), module.to_owned());
        Ok(Self { cache, module, rows: Arc::new(rows), schema, left_out: Arc::default() })
    }

    /// How many segments have rows that are not known: they are damaged or cannot be read.
    pub fn damaged_segments(&self) -> u64 {
        self.rows.damaged_segments()
    }

    /// Whether every change of the module was verified. Rows before a change that was not are left out.
    pub fn has_sound_changes(&self) -> bool {
        self.rows.has_sound_changes()
    }

    /// The maximum, over all scans of this process, of rows left out because a column that was read does not verify.
    pub fn left_out(&self) -> u64 {
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

    /// The rows are evaluated where they are read, so that no other row is.
    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| {
            if filter.is_volatile() {
                TableProviderFilterPushDown::Unsupported
            } else {
                TableProviderFilterPushDown::Exact
            }
        };
        Ok(filters.iter().map(support).collect())
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let all = || (0..self.schema.fields().len()).collect();
        let schema = DFSchema::try_from(self.schema.clone())?;
        let filters = filters.iter().map(|filter| session.create_physical_expr(filter.clone(), &schema));
        let selection = Selection {
            columns: projection.cloned().unwrap_or_else(all),
            filters: filters.collect::<Result<_>>()?,
            limit,
        };
        let (cache, module) = (self.cache.clone(), self.module.clone());
        let partitions = divided(self.rows.segments(), session.config().target_partitions());
        let scan = ModuleScan::new(cache, module, self.rows.clone(), selection, partitions)?;
        Ok(Arc::new(scan.counting(self.left_out.clone())))
    }
}
