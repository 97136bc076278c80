//! Counters as a dictionary.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tcx_store::{Stats, Timings, Traffic};

/// The counters, by the names that they have in Rust; durations in seconds.
pub(crate) fn dict<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let numbers = [
        ("hits", stats.hits),
        ("misses", stats.misses),
        ("bytes_served", stats.bytes_served),
        ("rows_computed", stats.rows_computed),
        ("rows_accepted", stats.rows_accepted),
        ("bytes_accepted", stats.bytes_accepted),
        ("rows_dropped", stats.rows_dropped),
        ("rows_superseded", stats.rows_superseded),
        ("buffered_rows", stats.buffered_rows),
        ("buffered_bytes", stats.buffered_bytes),
        ("rows_sealed", stats.rows_sealed),
        ("bytes_sealed", stats.bytes_sealed),
        ("segments", stats.segments),
        ("rows", stats.rows),
        ("bytes", stats.bytes),
        ("damaged_segments", stats.damaged_segments),
        ("unknown_segments", stats.unknown_segments),
        ("failed_reads", stats.failed_reads),
        ("failed_listings", stats.failed_listings),
        ("memory_cache_bytes", stats.memory_cache_bytes),
        ("memory_cache_limit", stats.memory_cache_limit),
        ("memory_cache_shrinks", stats.memory_cache_shrinks),
        ("rebuilt_runs", stats.rebuilt_runs),
        ("write_failures", stats.write_failures),
    ];
    for (name, value) in numbers {
        dict.set_item(name, value)?;
    }
    dict.set_item("is_writing_off", stats.is_writing_off)?;
    dict.set_item("miss_causes", causes(py, stats)?)?;
    dict.set_item("traffic", traffic(py, &stats.traffic)?)?;
    let times = [
        ("compute_times", &stats.compute_times),
        ("flush_times", &stats.flush_times),
        ("seal_times", &stats.seal_times),
        ("merge_times", &stats.merge_times),
        ("compaction_times", &stats.compaction_times),
        ("collection_times", &stats.collection_times),
    ];
    for (name, value) in times {
        dict.set_item(name, timings(py, value)?)?;
    }
    Ok(dict)
}

fn causes<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyDict>> {
    let causes = &stats.miss_causes;
    let dict = PyDict::new(py);
    for (name, value) in [
        ("absent", causes.absent),
        ("invalidated", causes.invalidated),
        ("expired", causes.expired),
        ("damaged", causes.damaged),
        ("unreadable", causes.unreadable),
        ("recomputed", causes.recomputed),
        ("rejected", causes.rejected),
        ("outdated", causes.outdated),
    ] {
        dict.set_item(name, value)?;
    }
    Ok(dict)
}

fn traffic<'py>(py: Python<'py>, traffic: &Traffic) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in [
        ("puts", traffic.puts),
        ("lists", traffic.lists),
        ("gets", traffic.gets),
        ("heads", traffic.heads),
        ("deletes", traffic.deletes),
        ("bytes_sent", traffic.bytes_sent),
        ("bytes_received", traffic.bytes_received),
        ("waiting_files", traffic.waiting_files),
        ("ranged_gets", traffic.ranged_gets),
        ("ranged_bytes", traffic.ranged_bytes),
        ("waiting_bytes", traffic.waiting_bytes),
    ] {
        dict.set_item(name, value)?;
    }
    Ok(dict)
}

fn timings<'py>(py: Python<'py>, times: &Timings) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("count", times.count)?;
    dict.set_item("total", times.total.as_secs_f64())?;
    dict.set_item("longest", times.longest.as_secs_f64())?;
    Ok(dict)
}
