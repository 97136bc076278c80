//! How many rows are found by epochs over a full folder, with each policy.

use std::time::Duration;

use super::eviction::{bytes, open};
use crate::testing::{compute, go_ahead, seal_all};
use crate::{Options, WhenFull};

/// Rows of a batch, and how many batches an epoch has.
const BATCH: usize = 8;
const BATCHES: usize = 12;

/// The percentage of the rows that are found by the last two of three epochs with room for half of the rows.
fn hit_rate(when_full: WhenFull, epoch: impl Fn(&mut u64) -> Vec<usize>) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let max = BATCHES as u64 / 2 * (BATCH as u64 * 1060 + 2500);
    let store = open(dir.path(), &Options { max_bytes: Some(max), when_full, ..Options::default() });
    let (mut dice, mut minute, mut before) = (7, 0, 0);
    for number in 0..3 {
        if number == 1 {
            before = store.stats().hits;
        }
        for batch in epoch(&mut dice).chunks(BATCH) {
            minute += 1;
            go_ahead(Duration::from_mins(minute));
            // Keys of a thousand bytes: so a segment has little else.
            let ids: Vec<String> = batch.iter().map(|row| format!("{row:01000}")).collect();
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            compute(&store, &ids, 7);
            seal_all(&store);
            store.core.keep_within_limits().unwrap();
        }
    }
    assert!(bytes(dir.path()) <= max + 12_000, "{when_full:?}: {} bytes", bytes(dir.path()));
    (store.stats().hits - before) * 100 / (2 * BATCH * BATCHES) as u64
}

fn roll(dice: &mut u64) -> f64 {
    *dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*dice >> 11) as f64 / (1_u64 << 53) as f64
}

#[test]
fn hit_rates_of_a_full_folder_do_not_fall_below_their_floors() {
    const ROWS: usize = BATCH * BATCHES;
    let sequential = |_: &mut u64| (0..ROWS).collect::<Vec<_>>();
    let shuffled = |dice: &mut u64| {
        let mut rows: Vec<usize> = (0..ROWS).collect();
        (1..ROWS).for_each(|at| rows.swap(at, (roll(dice) * (at + 1) as f64) as usize));
        rows
    };
    let zipf = |dice: &mut u64| {
        let rank = |roll: f64| ((ROWS + 1) as f64).powf(roll) as usize - 1;
        (0..ROWS).map(|_| rank(roll(dice)).min(ROWS - 1)).collect::<Vec<_>>()
    };
    let rates = |when_full| {
        [hit_rate(when_full, sequential), hit_rate(when_full, shuffled), hit_rate(when_full, zipf)]
    };
    let found =
        [WhenFull::StopWriting, WhenFull::EvictOldest, WhenFull::EvictLeastUsed, WhenFull::EvictRandom]
            .map(rates);
    // Sequential, shuffled, Zipf. There is room for six segments only, so each that is spared costs a sixth of it; chance decides a
    // part of the last row.
    let floors = [[50, 50, 70], [0, 6, 60], [6, 12, 62], [0, 3, 55]];
    let mut all = found.iter().flatten().zip(floors.iter().flatten());
    assert!(all.all(|(found, floor)| found >= floor), "{found:?} percent, expected at least {floors:?}");
    assert_eq!(found[1][0], 0, "the oldest row is always the next one");
}
