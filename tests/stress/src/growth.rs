//! 20,000 small flushes: the number of files stays small.

use tcx_engine_tests::growth::grow;

use crate::arguments::Arguments;
use crate::budget::Budget;
use crate::outcome::Outcome;

/// Three of each class of size, an input or two that was just replaced, a run for each.
const FILES: usize = 60;

pub(crate) fn run(budget: &Budget, _: &Arguments, outcome: &mut Outcome) {
    let growth = grow(budget.count(20_000), FILES, || budget.is_over());
    outcome.tried_many(growth.flushes as u64, growth.findings);
    if growth.most_files > FILES {
        outcome.wrong(format!("{} files after {} flushes", growth.most_files, growth.flushes));
    }
    outcome.figure("most files", growth.most_files);
    outcome.figure("segments at the end", growth.stats.segments);
}
