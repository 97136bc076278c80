//! The spans and events of `tracing`: a span around each step, progress, and one line when a cache is closed.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tcx::{Cache, Extractor, Mode, Result, cached_module};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// The spans by name, with the module they name, and the messages of level INFO.
static SPANS: Mutex<BTreeSet<(&str, String)>> = Mutex::new(BTreeSet::new());
static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Recorder;

#[derive(Default)]
struct Fields {
    module: String,
    message: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "module" => self.module = format!("{value:?}").replace('"', ""),
            "message" => self.message = format!("{value:?}"),
            _ => {}
        }
    }
}

impl<S: Subscriber> Layer<S> for Recorder {
    fn on_new_span(&self, span: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        let mut fields = Fields::default();
        span.record(&mut fields);
        SPANS.lock().unwrap().insert((span.metadata().name(), fields.module));
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() == Level::INFO {
            let mut fields = Fields::default();
            event.record(&mut fields);
            SAID.lock().unwrap().push(fields.message);
        }
    }
}

#[cached_module(id = "traced_v1", key = i64)]
struct Traced;

impl Extractor for Traced {
    type Input = Vec<i64>;
    type Output = Vec<i64>;

    fn forward(&self, inputs: &Vec<i64>) -> Result<Vec<i64>> {
        Ok(inputs.clone())
    }
}

#[test]
fn every_step_has_a_span_and_a_closed_cache_is_summed_up_in_one_line() {
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(Recorder)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let traced = cache.module(Traced).unwrap();
    let expected = ["compaction", "compute", "enqueue", "flush", "forward", "lookup"];
    let expected: BTreeSet<_> = expected.into_iter().map(|name| (name, "traced_v1".to_owned())).collect();
    // The background thread joins small segments at some later time.
    let deadline = Instant::now() + Duration::from_mins(2);
    let mut rows = 0;
    while *SPANS.lock().unwrap() != expected {
        assert!(Instant::now() < deadline, "{:?}", SPANS.lock().unwrap());
        traced.forward(&[rows], &vec![rows]).unwrap();
        rows += 1;
        traced.flush().unwrap();
    }
    for _ in 0..2 {
        traced.forward(&[0], &vec![0]).unwrap();
    }
    // A handle that looked nothing up prints no summary.
    cache.with_mode(Mode::Off).module(Traced).unwrap().forward(&[0], &vec![0]).unwrap();
    cache.clone().close().unwrap();
    drop((cache, traced));
    let said = SAID.lock().unwrap();
    // Progress is reported where this takes longer than two seconds.
    let said: Vec<_> = said.iter().filter(|line| !line.ends_with("/s")).collect();
    let [line] = said.as_slice() else { panic!("one line: {said:?}") };
    let percent = 200 / (rows + 2);
    let begins = format!("traced_v1: 2 hits, {rows} computed, {percent}% hits; {rows} rows, ");
    assert!(line.starts_with(&begins), "{line}");
}

#[cached_module(id = "brief_v1", key = i64)]
struct Brief;

impl Extractor for Brief {
    type Input = Vec<i64>;
    type Output = Vec<i64>;

    fn forward(&self, inputs: &Vec<i64>) -> Result<Vec<i64>> {
        Ok(inputs.clone())
    }
}

#[cached_module(id = "slow_v1", key = i64)]
struct Slow;

impl Extractor for Slow {
    type Input = Vec<i64>;
    type Output = Vec<i64>;

    fn forward(&self, inputs: &Vec<i64>) -> Result<Vec<i64>> {
        // Progress is reported after two seconds.
        std::thread::sleep(Duration::from_millis(800));
        Ok(inputs.clone())
    }
}

/// Keeps the messages of level INFO of one thread.
struct Messages(Arc<Mutex<Vec<String>>>);

impl<S: Subscriber> Layer<S> for Messages {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() == Level::INFO {
            let mut fields = Fields::default();
            event.record(&mut fields);
            self.0.lock().unwrap().push(fields.message);
        }
    }
}

#[test]
fn progress_is_an_event_whether_or_not_it_is_shown() {
    for shown in [false, true] {
        let messages = Arc::new(Mutex::new(Vec::new()));
        let subscriber = tracing_subscriber::registry().with(Messages(messages.clone()));
        tracing::subscriber::with_default(subscriber, || {
            let dir = tempfile::tempdir().unwrap();
            let slow = Cache::builder().progress(shown).open(dir.path()).unwrap().module(Slow).unwrap();
            for id in 0..4 {
                slow.forward(&[id], &vec![id]).unwrap();
            }
            let slow = slow.batch_size(1);
            slow.warm(&[4, 5, 6, 7], |missing| Ok(missing.ids().copied().collect())).unwrap();
        });
        let messages = messages.lock().unwrap();
        let has = |part: &str| messages.iter().any(|message| message.contains(part));
        assert!(has(" computed, 0 hits, ") && has(" of 4 samples"), "{messages:?}");
    }
}

#[test]
fn the_line_at_the_end_counts_rows_that_only_the_last_handle_writes() {
    let messages = Arc::new(Mutex::new(Vec::new()));
    let subscriber = tracing_subscriber::registry().with(Messages(messages.clone()));
    tracing::subscriber::with_default(subscriber, || {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path()).unwrap();
        let traced = cache.module(Brief).unwrap();
        traced.forward(&[1, 2, 3], &vec![1, 2, 3]).unwrap();
        drop(cache);
        drop(traced);
    });
    let messages = messages.lock().unwrap();
    let [line] = &messages[..] else { panic!("one line: {messages:?}") };
    assert!(line.starts_with("brief_v1: 0 hits, 3 computed, 0% hits; 3 rows, "), "{line}");
}
