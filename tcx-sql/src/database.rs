//! Runs queries on a cache.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use datafusion::catalog::{CatalogProvider, MemoryCatalogProvider};
use datafusion::execution::context::SQLOptions;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use tokio::runtime::{Builder, Runtime};

use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::query::answer::Answer;
use crate::query::depth;
use crate::tables::catalog::Modules;

/// The stack of the thread that plans.
const STACK: usize = 64 << 20;

/// The modules of a cache as tables. Each shows the state in which a query first names it.
///
/// ```
/// use tcx_sql::{Database, Value};
/// use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
///
/// let dir = tempfile::tempdir()?;
/// let output = ColumnType::Dense { dtype: DType::U8, shape: &[2] };
/// let spec = Spec::new("m_v1", KeyType::Text, &output, Identity::default(), Vec::new())?;
/// let store = Store::open(dir.path(), spec, &Options::default())?;
/// let mut rows = store.lookup(Keys::text(["cat", "dog"], 0)?)?;
/// store.insert(&mut rows, &[0, 1], vec![Column::dense(&[1, 2, 3, 4])])?;
/// store.flush()?;
///
/// let database = Database::open(dir.path())?;
/// let answer = database.query("select id, value[2] as second from m_v1 order by id desc")?;
/// let rows: Result<Vec<_>, _> = answer.collect();
/// assert_eq!(rows?[0], [Value::Text("dog".to_owned()), Value::Unsigned(4)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Database {
    runtime: Runtime,
    context: SessionContext,
    modules: Arc<Modules>,
}

impl Database {
    /// Opens the cache at a path or, with the feature `remote`, at a [URL](Cache::at).
    ///
    /// # Errors
    ///
    /// As [`Cache::at`], and if the directory cannot be listed or the store cannot be reached.
    pub fn open(cache: &Path) -> Result<Self> {
        Self::of(Cache::at(cache)?)
    }

    /// Opens a cache.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory cannot be listed, or the store cannot be reached.
    pub fn of(cache: Cache) -> Result<Self> {
        let names = cache.modules()?;
        let modules = Arc::new(Modules::new(cache, names));
        // One thread, so that rows without `order by` have the order of the table.
        let config = SessionConfig::new()
            .with_target_partitions(1)
            .with_information_schema(true)
            .with_default_catalog_and_schema("tcx", "cache");
        let context = SessionContext::new_with_config(config);
        let catalog = MemoryCatalogProvider::new();
        catalog.register_schema("cache", modules.clone())?;
        context.register_catalog("tcx", Arc::new(catalog));
        let runtime = Builder::new_current_thread().build()?;
        Ok(Self { runtime, context, modules })
    }

    /// Runs a query. Its rows are read while the answer is read.
    ///
    /// # Errors
    ///
    /// Returns an error if the SQL is wrong or could change something, or if a table does not exist or cannot be read.
    pub fn query(&self, sql: &str) -> Result<Answer<'_>> {
        depth::check(sql)?;
        let begin = || {
            self.runtime.block_on(async {
                let plan = self.plan(sql).await?;
                Ok(self.context.execute_logical_plan(plan).await?.execute_stream().await?)
            })
        };
        // Trees of expressions are planned by recursion: the caller's stack may be too small for what `depth` lets through.
        let stream = thread::scope(|scope| {
            let thread = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, begin)?;
            thread.join().unwrap_or_else(|_| {
                Err(Error::Query("DataFusion panicked: see its message above".to_owned()))
            })
        })?;
        Ok(Answer::new(&self.runtime, stream, self.modules.clone()))
    }

    async fn plan(&self, sql: &str) -> Result<LogicalPlan> {
        let state = self.context.state();
        let dialect = state.config_options().sql_parser.dialect;
        let statement = state.sql_to_statement(sql, &dialect)?;
        check(&statement)?;
        for table in state.resolve_table_references(&statement)? {
            let is_module = || self.modules.names().iter().any(|name| name == table.table());
            // A table function such as `range(1, 5)` is used like a table.
            let exists = || is_module() || state.table_functions().contains_key(table.table());
            if table.schema().is_none() && !exists() {
                return Err(self.no_table(table.table()));
            }
        }
        let plan = state.statement_to_plan(statement).await?;
        let only_reads =
            SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
        only_reads
            .verify_plan(&plan)
            .map_err(|_| Error::NotAQuery("a statement that could change something".to_owned()))?;
        Ok(plan)
    }

    fn no_table(&self, name: &str) -> Error {
        let tables = match self.modules.names() {
            [] => "the cache has no modules".to_owned(),
            names => {
                let quoted =
                    names.iter().map(|name| if is_plain(name) { name.clone() } else { format!("{name:?}") });
                format!("the tables are {}", quoted.collect::<Vec<_>>().join(", "))
            }
        };
        Error::NoTable { name: name.to_owned(), tables }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("modules", &self.modules.names()).finish_non_exhaustive()
    }
}

/// Whether a name needs no quotes.
fn is_plain(name: &str) -> bool {
    name.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_'))
        && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// Rejects statements that are not queries.
fn check(statement: &Statement) -> Result<()> {
    use ast::Statement as Sql;
    match statement {
        Statement::Explain(explain) => check(&explain.statement),
        Statement::Statement(sql) => match &**sql {
            Sql::Query(_)
            | Sql::Explain { .. }
            | Sql::ExplainTable { .. }
            | Sql::ShowTables { .. }
            | Sql::ShowColumns { .. }
            | Sql::ShowFunctions { .. }
            | Sql::ShowVariable { .. } => Ok(()),
            other => Err(not_a_query(other)),
        },
        other => Err(not_a_query(other)),
    }
}

fn not_a_query(statement: &impl ToString) -> Error {
    let text = statement.to_string();
    let word = text.split_whitespace().next().unwrap_or_default();
    Error::NotAQuery(format!("`{}`", word.to_lowercase()))
}
