//! The modules of a cache by name. A module is opened when a query names it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::TableType;

use super::table::ModuleTable;
use crate::cache::Cache;

#[derive(Debug)]
pub(crate) struct Modules {
    cache: Cache,
    names: Vec<String>,
    opened: Mutex<BTreeMap<String, Arc<ModuleTable>>>,
}

impl Modules {
    pub(crate) fn new(cache: Cache, names: Vec<String>) -> Self {
        Self { cache, names, opened: Mutex::default() }
    }

    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// Rows left out because they do not verify.
    pub(crate) fn left_out(&self) -> u64 {
        self.sum(ModuleTable::left_out)
    }

    /// Segments whose rows were left out.
    pub(crate) fn damaged_segments(&self) -> u64 {
        self.sum(ModuleTable::damaged_segments)
    }

    /// Whether every change was verified.
    pub(crate) fn has_sound_changes(&self) -> bool {
        self.sum(|table| u64::from(!table.has_sound_changes())) == 0
    }

    fn sum(&self, of: impl Fn(&ModuleTable) -> u64) -> u64 {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.values().map(|table| of(table)).sum()
    }

    /// Opens a module once, so that a query that names it twice sees one state.
    fn open(&self, name: &str) -> tcx_store::Result<Arc<ModuleTable>> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = opened.get(name) {
            return Ok(table.clone());
        }
        let table = Arc::new(ModuleTable::open(&self.cache, name)?);
        opened.insert(name.to_owned(), table.clone());
        Ok(table)
    }
}

#[async_trait]
impl SchemaProvider for Modules {
    fn table_names(&self) -> Vec<String> {
        self.names.clone()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        if !self.table_exist(name) {
            return Ok(None);
        }
        let table = self.open(name).map_err(|error| DataFusionError::External(Box::new(error)))?;
        Ok(Some(table))
    }

    /// Lists names without opening modules, so that an unreadable module does not hide the others.
    async fn table_type(&self, name: &str) -> Result<Option<TableType>, DataFusionError> {
        Ok(self.table_exist(name).then_some(TableType::Base))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.names.iter().any(|own| own == name)
    }
}
