//! An output that a module rejects, by an error of its `forward` or as a value that is not finite, is stored by no method.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::sync::Arc;

use tcx::{
    Cache, CacheableOutput, Cached, ErrorKind, Extractor, Keyed, Missing, Mode, Result, cached_module,
};

#[derive(CacheableOutput)]
struct Logarithms {
    log: Vec<f32>,
    name: Vec<String>,
}

/// A part of it, which is finite.
#[derive(CacheableOutput)]
struct Names {
    name: Vec<String>,
}

/// The logarithms of the ids, which it refuses if they are negative.
#[cached_module(id = "logarithms_v1", key = i64)]
struct Logs {}

impl Extractor for Logs {
    type Input = Vec<i64>;
    type Output = Logarithms;

    fn forward(&self, numbers: &Vec<i64>) -> Result<Logarithms> {
        if let Some(negative) = numbers.iter().find(|number| **number < 0) {
            return Err(tcx::Error::loader(format!("{negative} has no logarithm")));
        }
        let log = numbers.iter().map(|number| (*number as f32).ln()).collect();
        Ok(Logarithms { log, name: numbers.iter().map(i64::to_string).collect() })
    }
}

impl Keyed for Logs {
    type Id = i64;

    fn ids(numbers: &Vec<i64>) -> Result<Vec<i64>> {
        Ok(numbers.clone())
    }
}

#[expect(clippy::unnecessary_wraps, reason = "a loader returns a `Result`")]
fn load(missing: Missing<'_, i64>) -> Result<Vec<i64>> {
    Ok(missing.ids().copied().collect())
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Everything that computes rows.
type Entrance = fn(&Arc<Cached<Logs>>, &[i64]) -> Result<()>;

const ENTRANCES: [(&str, Entrance); 11] = [
    ("forward", |logs, ids| logs.forward(ids, &ids.to_vec()).map(drop)),
    ("forward_keyed", |logs, ids| logs.forward_keyed(&ids.to_vec()).map(drop)),
    ("fetch", |logs, ids| logs.fetch(ids, load).map(drop)),
    ("forward of a view", |logs, ids| logs.view(0).forward(ids, &ids.to_vec()).map(drop)),
    ("fetch of a view", |logs, ids| logs.view(0).fetch(ids, load).map(drop)),
    ("forward of fields", |logs, ids| logs.fields::<Names>()?.forward(ids, &ids.to_vec()).map(drop)),
    ("fetch of fields", |logs, ids| logs.fields::<Names>()?.fetch(ids, load).map(drop)),
    ("fetch_owned", |logs, ids| run(logs.fetch_owned(ids.to_vec(), load)).map(drop)),
    ("warm", |logs, ids| logs.warm(ids, load).map(drop)),
    ("warm_async", |logs, ids| run(logs.warm_async(ids.to_vec(), load)).map(drop)),
    ("epoch", |logs, ids| logs.epoch(ids).load(load).into_iter().try_for_each(|batch| batch.map(drop))),
];

#[test]
fn an_output_that_a_module_rejects_is_stored_by_no_method() {
    for mode in [Mode::ReadWrite, Mode::Recompute, Mode::ReadOnly, Mode::Off] {
        for (name, enter) in ENTRANCES {
            // `warm` refuses modes that store nothing.
            if name.contains("warm") && matches!(mode, Mode::ReadOnly | Mode::Off) {
                continue;
            }
            let cache = Cache::in_memory();
            let logs = Arc::new(cache.with_mode(mode).module(Logs {}).unwrap().reject_non_finite());
            let error = enter(&logs, &[1, 0, 2]).unwrap_err();
            assert_eq!(
                (error.module_id(), error.kind()),
                (Some("logarithms_v1"), ErrorKind::InvalidOutput),
                "{name}"
            );
            let text = format!("{error:#}");
            assert!(
                text.contains("field `log` of the output for id 0 is -inf"),
                "{name} in {mode:?}: {text}"
            );
            let error = enter(&logs, &[1, -1, 2]).unwrap_err();
            assert_eq!(
                (error.module_id(), error.kind()),
                (Some("logarithms_v1"), ErrorKind::Loader),
                "{name}"
            );
            assert!(format!("{error:#}").ends_with(": -1 has no logarithm"), "{name} in {mode:?}: {error:#}");
            let found = cache.module(Logs {}).unwrap().coverage(&[0, 1, 2, -1]).unwrap().found();
            assert_eq!((found, logs.stats().rows_accepted), (0, 0), "{name} in {mode:?}");
            enter(&logs, &[1, 2]).unwrap();
        }
    }
}
