//! Directories that an attacker has prepared.

use tcx_engine_tests::Dice;
use tcx_engine_tests::hostile::{forgery, traps};

use crate::arguments::{Arguments, workers};
use crate::budget::Budget;
use crate::outcome::Outcome;

pub(crate) fn run(budget: &Budget, _: &Arguments, outcome: &mut Outcome) {
    let workers = workers();
    for trap in traps() {
        outcome.tried(trap.visit(&workers));
        outcome.count("traps", 1);
    }
    let mut dice = Dice(0xbad);
    for _ in 0..budget.count(5_000) {
        if budget.is_over() {
            return;
        }
        outcome.tried(forgery(&mut dice).visit(&workers));
        outcome.count("forged files", 1);
    }
}
