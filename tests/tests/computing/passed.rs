//! Checks that a module has passed in one process are not repeated in the next.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::path::Path;
use std::sync::Mutex;

use tcx::{Cache, Extractor, cached_module};

/// Records what it computes; draws a random number on request.
#[cached_module(id = "noted_v1", key = i64)]
struct Noted {
    #[tcx(assume_stateless)]
    seen: &'static Mutex<Vec<i64>>,
    #[tcx(not_identity)]
    is_random: bool,
}

impl Extractor for Noted {
    type Input = Vec<i64>;
    type Output = Vec<i64>;

    fn forward(&self, inputs: &Vec<i64>) -> tcx::Result<Vec<i64>> {
        let mut seen = self.seen.lock().unwrap();
        seen.extend(inputs);
        let lot = if self.is_random { seen.len() as i64 } else { 0 };
        Ok(inputs.iter().map(|x| x + lot).collect())
    }
}

/// What one process computes for these ids before it ends.
fn computed(dir: &Path, ids: &[i64], recheck: f64, is_random: bool) -> (Vec<i64>, tcx::Result<Vec<i64>>) {
    let seen: &'static Mutex<Vec<i64>> = Box::leak(Box::default());
    let cache = Cache::builder().recheck(recheck).open(dir).unwrap();
    let found = cache.module(Noted { seen, is_random }).unwrap().forward(ids, &ids.to_vec());
    (seen.lock().unwrap().clone(), found)
}

fn count(dir: &Path, ids: &[i64]) -> usize {
    let (seen, found) = computed(dir, ids, 0., false);
    assert_eq!(found.unwrap(), ids);
    seen.len()
}

#[test]
fn checks_that_were_passed_in_an_earlier_process_cost_nothing_in_the_next() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(count(dir.path(), &[1]), 2, "a single sample is computed once more");
    assert_eq!(count(dir.path(), &[2]), 1);
    assert_eq!(count(dir.path(), &[3, 4, 5]), 5, "of a batch nothing is recorded yet");
    assert_eq!(count(dir.path(), &[6, 7, 8]), 3);
    assert_eq!(count(dir.path(), &[9]), 1);
    // Nothing depends on a record.
    let records = dir.path().join("noted_v1").join("checks");
    for record in std::fs::read_dir(&records).unwrap() {
        let record = record.unwrap().path();
        std::fs::remove_file(&record).unwrap();
        std::fs::write(&record, "tcx checks 1\n").unwrap();
    }
    assert_eq!(count(dir.path(), &[10, 11, 12]), 5);
    std::fs::remove_dir_all(&records).unwrap();
    assert_eq!(count(dir.path(), &[13, 14, 15]), 5);
}

#[test]
fn the_standing_check_goes_on_and_takes_a_record_away_that_was_wrong() {
    let dir = tempfile::tempdir().unwrap();
    count(dir.path(), &[1, 2, 3]);
    assert_eq!(count(dir.path(), &[4]), 1, "it is recorded");
    let (_, refused) = computed(dir.path(), &[5, 6], 1., true);
    assert!(refused.unwrap_err().to_string().contains("two different outputs"));
    assert_eq!(count(dir.path(), &[5]), 2, "it is checked again");
}
