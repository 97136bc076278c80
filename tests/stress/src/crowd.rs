//! Eight writers, four readers and two processes that join and remove, on one directory.

use tcx_engine_tests::crowd::crowd;

use crate::arguments::{Arguments, workers};
use crate::budget::Budget;
use crate::outcome::Outcome;

/// Seconds on one directory.
const SECONDS: u64 = 60;

pub(crate) fn run(budget: &Budget, _: &Arguments, outcome: &mut Outcome) {
    loop {
        // The second half of the time is for verifying the rows.
        let seconds = SECONDS.min(budget.left().as_secs() * 2 / 3).max(2);
        let crowd = crowd(&workers(), seconds);
        outcome.tried_many((crowd.events + crowd.batches + crowd.looks) as u64, crowd.findings);
        outcome.count("processes", crowd.processes);
        outcome.count("events", crowd.events);
        outcome.count("batches", crowd.batches);
        outcome.count("looks", crowd.looks);
        outcome.count("looks repeated", crowd.misses);
        if budget.left().as_secs() < SECONDS {
            return;
        }
    }
}
