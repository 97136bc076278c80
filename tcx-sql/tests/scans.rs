//! What a plan reads, and in how many parts.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, collect, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use support::{add, add_to, clip, ids};
use tcx_sql::{Cache, ModuleTable};
use tcx_store::Keys;
use tokio::runtime::Runtime;

fn session(cache: &Path, partitions: usize) -> SessionContext {
    let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(partitions));
    let table = ModuleTable::open(&Cache::at(cache).unwrap(), "clip_v1").unwrap();
    context.register_table("clip_v1", Arc::new(table)).unwrap();
    context
}

fn plan(context: &SessionContext, sql: &str) -> Arc<dyn ExecutionPlan> {
    let plan = async { context.sql(sql).await?.create_physical_plan().await };
    Runtime::new().unwrap().block_on(plan).unwrap()
}

fn scores(context: &SessionContext, sql: &str) -> Vec<i64> {
    let batches = collect(plan(context, sql), context.task_ctx());
    let batches = Runtime::new().unwrap().block_on(batches).unwrap();
    let mut scores: Vec<i64> = batches
        .iter()
        .flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec())
        .collect();
    scores.sort_unstable();
    scores
}

/// Three segments of ten rows; of the last, five are copies of others. (Four would be joined.)
fn filled(cache: &Path) {
    let stores = [clip(cache), clip(cache)];
    let copied = ids(15..25);
    let looked = stores[1].lookup(Keys::text(&copied, 0).unwrap()).unwrap();
    for at in 0..2 {
        add(&stores[0], &ids(at * 10..at * 10 + 10), at);
    }
    add_to(&stores[1], looked, &copied, 2);
}

#[test]
fn columns_and_filters_are_applied_where_rows_are_read() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let context = session(dir.path(), 1);
    let shown = |sql: &str| displayable(&*plan(&context, sql)).indent(false).to_string();
    let plan = shown("select id from clip_v1 where score > 1 and caption like '%7'");
    assert!(plan.contains("ModuleScan: module=clip_v1, segments=3, columns=[id], filter="), "{plan}");
    assert!(!plan.contains("FilterExec"), "{plan}");
    assert!(plan.contains("score") && plan.contains("caption"), "{plan}");
    let plan = shown("select id from clip_v1 where random() < 2");
    assert!(plan.contains("FilterExec"), "a filter that differs from call to call: {plan}");
    let plan = shown("select score from clip_v1 limit 3");
    assert!(plan.contains("limit=3"), "{plan}");
}

#[test]
fn each_row_is_read_once_however_many_parts_there_are() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let wanted = [vec![0; 10], vec![1; 10], vec![2; 5]].concat();
    for partitions in [1, 2, 3, 9] {
        let context = session(dir.path(), partitions);
        let scan = plan(&context, "select score from clip_v1");
        assert_eq!(scan.output_partitioning().partition_count(), partitions.min(3));
        assert_eq!(scores(&context, "select score from clip_v1"), wanted);
        assert_eq!(scores(&context, "select score from clip_v1 where id in ('15', '24', '5')"), [0, 1, 2]);
        assert_eq!(scores(&context, "select score from clip_v1 where vector[1] > 1 and score < 2"), [1; 10]);
        assert_eq!(scores(&context, "select score from clip_v1 where score > 0 limit 4").len(), 4);
        assert_eq!(scores(&context, "select score from clip_v1 where nullif(score, 1) = 2"), [2; 5]);
    }
}
