//! Plans for other processes.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{AggregateUDF, HigherOrderUDF, ScalarUDF, WindowUDF};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr_common::physical_expr::proto_decode::PhysicalExprDecodeCtx;
use datafusion::physical_expr_common::physical_expr::proto_encode::PhysicalExprEncodeCtx;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::union::UnionExec;
use datafusion_proto::physical_plan::{
    DefaultPhysicalExtensionCodec, PhysicalExtensionCodec, PhysicalPlanDecodeContext,
    PhysicalProtoConverterExtension,
};
use datafusion_proto::protobuf::PhysicalExprNode;
use prost::Message;
use tcx_store::{Pin, PinnedRows, PinnedSegment};

use super::columns;
use super::scan::{ModuleScan, Selection};
use crate::cache::Cache;

/// Begins the message of a scan, and has its version: an older process must not read a newer one. No message of the format that other codecs
/// use begins so.
const MAGIC: &[u8] = b"tcx scan 1";

/// Sends scans of modules to other processes, which read the same rows: those that were live when the table was opened. Give it to each
/// part of a distributed runner of DataFusion: to the client, the scheduler and the executors. What is no scan of a module is left to the
/// codec that the runner has.
///
/// All of them must see the cache at the same path or URL. Settings and credentials of an object store are not sent: each process has them
/// in its environment. A process fails if rows are not there any more, because they were invalidated or their segments were joined and removed:
/// then run the query again. It also fails if a row does not verify, where a query on one machine leaves it out and counts it, and rows of a
/// module with damaged segments are not sent.
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
/// use datafusion_proto::bytes::{
///     physical_plan_from_bytes_with_extension_codec, physical_plan_to_bytes_with_extension_codec,
/// };
/// use tcx_sql::{Cache, ModuleCodec, ModuleTable, split_scans};
///
/// let (context, codec) = (SessionContext::new(), ModuleCodec::default());
/// let table = ModuleTable::open(&Cache::at(dir.path())?, "m_v1")?;
/// context.register_table("features", Arc::new(table))?;
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// let plan = context.sql("select id from features where value > 10").await?.create_physical_plan().await?;
/// let bytes = physical_plan_to_bytes_with_extension_codec(split_scans(plan)?, &codec)?;
/// // In another process:
/// let plan = physical_plan_from_bytes_with_extension_codec(&bytes, &context.task_ctx(), &codec)?;
/// let found = datafusion::physical_plan::collect(plan, context.task_ctx()).await?;
/// assert_eq!(found.iter().map(|batch| batch.num_rows()).sum::<usize>(), 1);
/// # datafusion::error::Result::Ok(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ModuleCodec {
    others: Arc<dyn PhysicalExtensionCodec>,
    /// What this process has open, by the message: a process executes many parts of one plan.
    open: Mutex<HashMap<Vec<u8>, Weak<PinnedRows>>>,
}

#[derive(Clone, PartialEq, Message)]
struct ScanNode {
    #[prost(message, optional, tag = "1")]
    rows: Option<RowsNode>,
    #[prost(uint64, repeated, tag = "2")]
    columns: Vec<u64>,
    #[prost(message, repeated, tag = "3")]
    filters: Vec<PhysicalExprNode>,
    #[prost(uint64, optional, tag = "4")]
    limit: Option<u64>,
    /// The first segment of the partition, and the one behind its last.
    #[prost(uint64, tag = "5")]
    start: u64,
    #[prost(uint64, tag = "6")]
    end: u64,
}

/// Pinned rows.
#[derive(Clone, PartialEq, Message)]
struct RowsNode {
    /// A path or a URL.
    #[prost(string, tag = "1")]
    cache: String,
    #[prost(string, tag = "2")]
    module: String,
    #[prost(string, tag = "3")]
    instance: String,
    #[prost(uint64, tag = "4")]
    change: u64,
    #[prost(message, repeated, tag = "5")]
    segments: Vec<SegmentNode>,
}

#[derive(Clone, PartialEq, Message)]
struct SegmentNode {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(uint64, tag = "2")]
    rows: u64,
    #[prost(uint64, tag = "3")]
    bytes: u64,
    #[prost(uint32, repeated, tag = "4")]
    copies: Vec<u32>,
}

impl RowsNode {
    fn new(scan: &ModuleScan) -> Result<Self> {
        let Pin { instance, change, segments } =
            scan.rows().pin().map_err(|error| DataFusionError::External(Box::new(error)))?;
        let segment = |PinnedSegment { name, rows, bytes, copies }| SegmentNode { name, rows, bytes, copies };
        let segments = segments.into_iter().map(segment).collect();
        Ok(Self {
            cache: scan.cache().place()?,
            module: scan.module().to_owned(),
            instance,
            change,
            segments,
        })
    }

    fn pin(&self) -> Pin {
        let segment = |own: &SegmentNode| PinnedSegment {
            name: own.name.clone(),
            rows: own.rows,
            bytes: own.bytes,
            copies: own.copies.clone(),
        };
        let segments = self.segments.iter().map(segment).collect();
        Pin { instance: self.instance.clone(), change: self.change, segments }
    }
}

/// Gives each partition of the scan of a module a scan of its own, below a union: a plan with scans of several partitions cannot be
/// [sent](ModuleCodec). A runner like Ballista restricts the leaves that it knows to the partitions of a task, and executes others as a whole in each task,
/// so that their rows would count several times.
///
/// # Errors
///
/// Returns an error if DataFusion refuses the new plan.
pub fn split_scans(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let split = |node: Arc<dyn ExecutionPlan>| match node.downcast_ref::<ModuleScan>() {
        Some(scan) if scan.partitions().len() > 1 => Ok(Transformed::yes(UnionExec::try_new(scan.split()?)?)),
        _ => Ok(Transformed::no(node)),
    };
    Ok(plan.transform_up(split)?.data)
}

impl Default for ModuleCodec {
    /// Sends scans of modules, and nothing else that DataFusion does not send by itself.
    fn default() -> Self {
        Self::with(Arc::new(DefaultPhysicalExtensionCodec {}))
    }
}

impl ModuleCodec {
    /// Leaves to this codec what is no scan of a module.
    pub fn with(others: Arc<dyn PhysicalExtensionCodec>) -> Self {
        Self { others, open: Mutex::default() }
    }

    fn rows(&self, cache: &Cache, node: &RowsNode) -> Result<Arc<PinnedRows>> {
        let message = node.encode_to_vec();
        let open = || self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rows) = open().get(&message).and_then(Weak::upgrade) {
            return Ok(rows);
        }
        // Without the lock: it may take long.
        let rows = cache.rows(&node.module, Some(&node.pin()));
        let rows = Arc::new(rows.map_err(|error| DataFusionError::External(Box::new(error)))?);
        let mut open = open();
        open.retain(|_, rows| rows.strong_count() > 0);
        open.insert(message, Arc::downgrade(&rows));
        Ok(rows)
    }
}

impl PhysicalExtensionCodec for ModuleCodec {
    fn try_decode(
        &self,
        buf: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(scan) = buf.strip_prefix(MAGIC) else {
            return self.others.try_decode(buf, inputs, context, converter);
        };
        let unreadable = |what: &str| {
            DataFusionError::Plan(format!(
                "expected the scan of a module, found {what}: all processes need one version of tcx"
            ))
        };
        if !inputs.is_empty() {
            return Err(unreadable("a node with inputs"));
        }
        let node = ScanNode::decode(scan).map_err(|error| unreadable(&error.to_string()))?;
        let own = node.rows.ok_or_else(|| unreadable("no rows"))?;
        let cache =
            Cache::at(Path::new(&own.cache)).map_err(|error| DataFusionError::External(Box::new(error)))?;
        let rows = self.rows(&cache, &own)?;
        let schema = columns::schema(rows.spec());
        let decode = PhysicalPlanDecodeContext::new(context, self);
        let filters =
            node.filters.iter().map(|filter| converter.proto_to_physical_expr(filter, &schema, &decode));
        let number =
            |number: u64| usize::try_from(number).map_err(|_| unreadable("a number that is too large"));
        let selection = Selection {
            columns: node.columns.into_iter().map(number).collect::<Result<_>>()?,
            filters: filters.collect::<Result<_>>()?,
            limit: node.limit.map(number).transpose()?,
        };
        let segments = number(node.start)?..number(node.end)?;
        if segments.start > segments.end || segments.end > rows.segments() {
            return Err(unreadable("segments that the module does not have"));
        }
        Ok(Arc::new(ModuleScan::new(cache, own.module, rows, selection, vec![segments])?))
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        buf: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let Some(scan) = node.downcast_ref::<ModuleScan>() else {
            return self.others.try_encode(node, buf, converter);
        };
        let [Range { start, end }] = scan.partitions() else {
            let what = "cannot send the scan of a module with several partitions, because some runners would execute all of them in each \
                        task: give each a scan of its own with `tcx_sql::split_scans`";
            return Err(DataFusionError::Plan(what.to_owned()));
        };
        let Selection { columns, filters, limit } = scan.selection();
        let filters = filters.iter().map(|filter| converter.physical_expr_to_proto(filter, self));
        let message = ScanNode {
            rows: Some(RowsNode::new(scan)?),
            columns: columns.iter().map(|column| *column as u64).collect(),
            filters: filters.collect::<Result<_>>()?,
            limit: limit.map(|limit| limit as u64),
            start: *start as u64,
            end: *end as u64,
        };
        buf.extend(MAGIC);
        message.encode(buf).map_err(|error| DataFusionError::External(Box::new(error)))
    }

    fn try_decode_udf(&self, name: &str, buf: &[u8]) -> Result<Arc<ScalarUDF>> {
        self.others.try_decode_udf(name, buf)
    }

    fn try_encode_udf(&self, node: &ScalarUDF, buf: &mut Vec<u8>) -> Result<()> {
        self.others.try_encode_udf(node, buf)
    }

    fn try_decode_higher_order_function(&self, name: &str, buf: &[u8]) -> Result<Arc<HigherOrderUDF>> {
        self.others.try_decode_higher_order_function(name, buf)
    }

    fn try_encode_higher_order_function(&self, node: &HigherOrderUDF, buf: &mut Vec<u8>) -> Result<()> {
        self.others.try_encode_higher_order_function(node, buf)
    }

    fn try_decode_expr(
        &self,
        buf: &[u8],
        inputs: &[Arc<dyn PhysicalExpr>],
        context: &PhysicalExprDecodeCtx<'_>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        self.others.try_decode_expr(buf, inputs, context)
    }

    fn try_encode_expr(
        &self,
        node: &Arc<dyn PhysicalExpr>,
        buf: &mut Vec<u8>,
        context: &PhysicalExprEncodeCtx<'_>,
    ) -> Result<()> {
        self.others.try_encode_expr(node, buf, context)
    }

    fn try_decode_udaf(&self, name: &str, buf: &[u8]) -> Result<Arc<AggregateUDF>> {
        self.others.try_decode_udaf(name, buf)
    }

    fn try_encode_udaf(&self, node: &AggregateUDF, buf: &mut Vec<u8>) -> Result<()> {
        self.others.try_encode_udaf(node, buf)
    }

    fn try_decode_udwf(&self, name: &str, buf: &[u8]) -> Result<Arc<WindowUDF>> {
        self.others.try_decode_udwf(name, buf)
    }

    fn try_encode_udwf(&self, node: &WindowUDF, buf: &mut Vec<u8>) -> Result<()> {
        self.others.try_encode_udwf(node, buf)
    }
}
