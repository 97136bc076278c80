//! Moves a folder away from running processes, puts nothing or another instance in its place, and moves it back.

use tcx_engine_tests::moved::{Instead, move_folder};

use crate::arguments::{Arguments, workers};
use crate::budget::Budget;
use crate::outcome::Outcome;

pub(crate) fn run(budget: &Budget, _: &Arguments, outcome: &mut Outcome) {
    let workers = workers();
    for seed in 1..=budget.count(200) as u64 {
        if seed > 1 && budget.is_over() {
            return;
        }
        for instead in Instead::ALL {
            let mut moved = move_folder(&workers, instead, seed);
            let findings = &mut moved.findings;
            for what in findings.wrong.iter_mut().chain(&mut findings.lost) {
                *what = format!("{instead:?}, seed {seed}: {what}");
            }
            outcome.tried(moved.findings);
            outcome.count("events", moved.events);
            outcome.count("calls failed", moved.failed);
            outcome.count("handles refused", moved.refused);
        }
    }
}
