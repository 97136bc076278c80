//! A folder that is moved away under running processes; `cargo xtask stress --only moved` does more of it.

use tcx_engine_tests::Workers;
use tcx_engine_tests::moved::{Instead, move_folder};

#[test]
fn a_folder_that_was_away_or_replaced_comes_back_without_lost_or_invalidated_rows() {
    let workers = Workers::new([env!("CARGO_BIN_EXE_worker")]);
    for (seed, instead) in (1..).zip(Instead::ALL) {
        let moved = move_folder(&workers, instead, seed);
        moved.findings.assert_none();
        assert!(moved.failed + moved.refused > 0, "{instead:?}: the processes did not notice");
    }
}
