//! Plans that other processes execute.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_proto::bytes::{
    physical_plan_from_bytes_with_extension_codec, physical_plan_to_bytes_with_extension_codec,
};
use support::{add, clip, damage, ids, segments};
use tcx_sql::{Cache, ModuleCodec, ModuleTable, split_scans};
use tcx_store::Keys;
use tokio::runtime::Runtime;

/// The plan of a query, as it is sent.
fn sent(cache: &Path, sql: &str) -> Vec<u8> {
    let plan = split_scans(plan(cache, sql)).unwrap();
    physical_plan_to_bytes_with_extension_codec(plan, &ModuleCodec::default()).unwrap().to_vec()
}

fn plan(cache: &Path, sql: &str) -> Arc<dyn ExecutionPlan> {
    let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(3));
    let table = ModuleTable::open(&Cache::at(cache).unwrap(), "clip_v1").unwrap();
    context.register_table("clip_v1", Arc::new(table)).unwrap();
    let plan = async { context.sql(sql).await?.create_physical_plan().await };
    Runtime::new().unwrap().block_on(plan).unwrap()
}

/// The plan as another process receives it.
fn received(bytes: &[u8]) -> datafusion::error::Result<Arc<dyn ExecutionPlan>> {
    let context = SessionContext::new().task_ctx();
    physical_plan_from_bytes_with_extension_codec(bytes, &context, &ModuleCodec::default())
}

fn rows(bytes: &[u8]) -> datafusion::error::Result<usize> {
    let batches = collect(received(bytes)?, SessionContext::new().task_ctx());
    Ok(Runtime::new().unwrap().block_on(batches)?.iter().map(RecordBatch::num_rows).sum())
}

#[test]
fn a_process_that_receives_a_plan_reads_the_rows_of_the_moment_when_it_was_made() {
    let dir = tempfile::tempdir().unwrap();
    let store = clip(dir.path());
    for at in 0..3 {
        add(&store, &ids(at * 10..at * 10 + 10), at);
    }
    let (all, some) = (
        sent(dir.path(), "select id, vector from clip_v1"),
        sent(dir.path(), "select id from clip_v1 where score > 0 and caption like '%5'"),
    );
    add(&store, &ids(100..120), 5);
    store.compact().unwrap();
    assert_eq!(received(&all).unwrap().output_partitioning().partition_count(), 3);
    assert_eq!((rows(&all).unwrap(), rows(&some).unwrap()), (30, 2));
    assert_eq!(rows(&sent(dir.path(), "select id from clip_v1")).unwrap(), 50);
}

#[test]
fn rows_that_are_not_there_any_more_end_the_query() {
    let dir = tempfile::tempdir().unwrap();
    let store = clip(dir.path());
    add(&store, &ids(0..10), 1);
    let plan = sent(dir.path(), "select id from clip_v1");
    store.invalidate(&Keys::text(["3"], 0).unwrap()).unwrap();
    let error = rows(&plan).unwrap_err().to_string();
    assert!(error.contains("invalidated or replaced") && error.contains("run the query again"), "{error}");
}

#[test]
fn what_is_no_scan_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    add(&clip(dir.path()), &ids(0..10), 1);
    let mut plan = sent(dir.path(), "select id from clip_v1");
    let at = plan.windows(7).position(|bytes| bytes == b"clip_v1").unwrap();
    plan[at] = b'x';
    let error = received(&plan).unwrap_err().to_string();
    assert!(error.contains("xlip_v1"), "{error}");
}

#[test]
fn a_scan_of_several_partitions_is_not_sent_because_each_task_may_execute_all() {
    let dir = tempfile::tempdir().unwrap();
    let store = clip(dir.path());
    (0..3).for_each(|at| add(&store, &ids(at * 10..at * 10 + 10), at));
    let plan = plan(dir.path(), "select id from clip_v1");
    let error = physical_plan_to_bytes_with_extension_codec(plan, &ModuleCodec::default()).unwrap_err();
    assert!(error.to_string().contains("tcx_sql::split_scans"), "{error}");
}

#[test]
fn a_row_that_does_not_verify_ends_the_query_in_another_process() {
    let dir = tempfile::tempdir().unwrap();
    // Enough of them that the vectors are far from what says where they are.
    add(&clip(dir.path()), &ids(0..5000), 1);
    let plan = sent(dir.path(), "select id, vector from clip_v1");
    let segment = segments(&dir.path().join("clip_v1")).remove(0);
    let bytes = std::fs::read(&segment).unwrap();
    // The vector of each row is the length of its id.
    let at = bytes.windows(8).position(|own| own == [1_f32.to_le_bytes(); 2].concat()).unwrap();
    damage(&segment, at);
    let error = rows(&plan).unwrap_err().to_string();
    assert!(error.contains("do not verify") && error.contains("tcx verify"), "{error}");
}
