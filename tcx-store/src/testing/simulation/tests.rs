//! Many runs of chance.

use super::random::{self, Unreadable, Way};

/// Seeds that have failed once.
const FAILED: [u64; 13] =
    [2, 256, 1336, 1339, 3287, 4094, 5657, 5761, 20_872, 116_259, 2_016_397, 2_027_013, 2_033_737];

/// Seeds that have failed once where changes could not be read.
const FAILED_TO_READ: [u64; 10] =
    [3200, 3745, 10_259, 108_352, 1_000_199, 1_009_082, 2_042_805, 2_057_973, 9_002_958, 9_004_082];

/// Seeds that have failed once where segments could not be read.
const FAILED_TO_READ_SEGMENTS: [u64; 5] = [79, 2823, 300_060_651, 500_013_303, 851_005_173];

/// Seeds that have failed once where processes invalidate by age.
const FAILED_BY_AGE: [u64; 5] = [3746, 3798, 300_091_273, 820_002_277, 880_021_131];

/// Seeds that have failed once where processes reject rows and put values.
const FAILED_RENEWING: [u64; 12] =
    [428, 856, 1082, 2214, 3179, 16_721, 17_431, 28_880, 31_558, 400_094_518, 810_002_690, 830_003_674];

const STEPS: usize = 300;

/// The runs of a seed.
pub(super) const RUNS: [Way; 6] = [
    Way::Plain,
    Way::Unreadable(Unreadable { change: 100, segment: 0 }),
    Way::Unreadable(Unreadable { change: 0, segment: 50 }),
    Way::ByAge,
    Way::Renewing,
    Way::Damaging,
];

/// Runs a seed. If a wrong row is served or a row is lost, panics with the end of the trace.
pub(super) fn check(seed: u64, way: Way) {
    if random::run(seed, STEPS, false, way).violation.is_none() {
        return;
    }
    let run = random::run(seed, STEPS, true, way);
    let last = &run.trace[run.trace.len().saturating_sub(2000)..];
    panic!("{}\nseed {seed}, {way:?}: {}", last.join("\n"), run.violation.unwrap_or_default());
}

#[test]
fn nothing_wrong_is_served_and_nothing_acknowledged_is_lost() {
    FAILED.into_iter().chain(0..500).for_each(|seed| check(seed, RUNS[0]));
}

#[test]
fn changes_that_cannot_be_read_for_a_moment_cost_misses_and_no_acknowledged_row() {
    FAILED_TO_READ.into_iter().chain(0..200).for_each(|seed| check(seed, RUNS[1]));
}

#[test]
fn segments_that_cannot_be_read_for_a_moment_cost_misses_and_no_acknowledged_row() {
    FAILED_TO_READ_SEGMENTS.into_iter().chain(0..200).for_each(|seed| check(seed, RUNS[2]));
}

#[test]
fn invalidations_by_age_kill_what_is_old_and_nothing_else() {
    FAILED_BY_AGE.into_iter().chain(0..200).for_each(|seed| check(seed, RUNS[3]));
}

#[test]
fn rows_that_are_rejected_put_or_stamped_are_replaced_and_survive() {
    FAILED_RENEWING.into_iter().chain(0..200).for_each(|seed| check(seed, RUNS[4]));
}

#[test]
fn rows_of_damaged_files_are_missed_and_do_not_come_back_after_a_repair() {
    (0..200).for_each(|seed| check(seed, RUNS[5]));
}

#[test]
fn a_seed_replays_exactly() {
    let others = (0..5).flat_map(|seed| RUNS[2..].iter().map(move |way| (seed, *way)));
    for (seed, way) in (0..20).map(|seed| (seed, RUNS[0])).chain(others) {
        let run = || random::run(seed, STEPS, true, way);
        let (one, two) = (run(), run());
        assert!(one.trace.len() > 100);
        for (line, (one, two)) in one.trace.iter().zip(&two.trace).enumerate() {
            assert_eq!(one, two, "seed {seed}, line {line}");
        }
        assert_eq!(one.trace.len(), two.trace.len());
    }
}
