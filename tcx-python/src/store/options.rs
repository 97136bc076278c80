//! The settings of a table, by their names.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tcx_store::{BackgroundPriority, MemoryCachePolicy, OnMismatch, Options, ReadMode, WhenFull};

use crate::interop::error::{OrRaise, of_kind};

/// The settings that the dictionary names; the others have their defaults.
pub(crate) fn options(given: &Bound<'_, PyDict>) -> PyResult<Options> {
    let mut options = Options::default();
    for (name, value) in given {
        let name: String = name.extract()?;
        set(&mut options, &name, &value).map_err(|error| {
            if is_own(&error) {
                error
            } else {
                of_kind("InvalidSettings", &format!("setting `{name}`: {error}"))
            }
        })?;
    }
    Ok(options)
}

/// Whether it is an exception of this package, whose text is complete.
fn is_own(error: &PyErr) -> bool {
    Python::attach(|py| error.value(py).hasattr("kind").unwrap_or(false))
}

fn set(options: &mut Options, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    match name {
        "flush_bytes" => options.flush_bytes = value.extract()?,
        "flush_interval" => options.flush_interval = seconds(value)?,
        "write_buffer_bytes" => options.write_buffer_bytes = value.extract()?,
        "refresh_every" => options.refresh_every = seconds(value)?,
        "gc_grace" => options.gc_grace = seconds(value)?,
        "time_to_live" => options.time_to_live = if value.is_none() { None } else { Some(seconds(value)?) },
        "max_bytes" => options.max_bytes = value.extract()?,
        "when_full" => {
            options.when_full = choose(
                name,
                value,
                &[
                    ("stop_writing", WhenFull::StopWriting),
                    ("evict_oldest", WhenFull::EvictOldest),
                    ("evict_least_used", WhenFull::EvictLeastUsed),
                    ("evict_random", WhenFull::EvictRandom),
                ],
            )?;
        }
        "compression" => {
            let compression: String = value.extract()?;
            options.compression = compression.parse().or_raise()?;
        }
        "memory_cache_bytes" => options.memory_cache_bytes = value.extract()?,
        "memory_cache_policy" => {
            let policies =
                [("lru", MemoryCachePolicy::Lru), ("scan_resistant", MemoryCachePolicy::ScanResistant)];
            options.memory_cache_policy = choose(name, value, &policies)?;
        }
        "read_mode" => {
            let modes = [("auto", ReadMode::Auto), ("map", ReadMode::Map), ("pread", ReadMode::Pread)];
            options.read_mode = choose(name, value, &modes)?;
        }
        "background_priority" => {
            let priorities = [("low", BackgroundPriority::Low), ("idle", BackgroundPriority::Idle)];
            options.background_priority = choose(name, value, &priorities)?;
        }
        "on_mismatch" => {
            let actions = [("refuse", OnMismatch::Refuse), ("separate", OnMismatch::Separate)];
            options.on_mismatch = choose(name, value, &actions)?;
        }
        _ => return Err(of_kind("InvalidSettings", &format!("there is no setting `{name}`"))),
    }
    Ok(())
}

fn seconds(value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let seconds: f64 = value.extract()?;
    Duration::try_from_secs_f64(seconds)
        .map_err(|error| of_kind("InvalidSettings", &format!("{seconds} is no duration in seconds: {error}")))
}

fn choose<T: Copy>(name: &str, value: &Bound<'_, PyAny>, all: &[(&str, T)]) -> PyResult<T> {
    let asked: String = value.extract()?;
    all.iter().find(|(own, _)| *own == asked).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|(own, _)| format!("`{own}`")).collect();
        of_kind(
            "InvalidSettings",
            &format!("setting `{name}`: found `{asked}`, expected one of {}", names.join(", ")),
        )
    })
}
