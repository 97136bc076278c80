//! A cache that grows by small flushes for a long time.

use tcx_engine_tests::growth::grow;

const FILES: usize = 40;

#[test]
fn a_thousand_small_flushes_leave_a_logarithmic_number_of_files() {
    let growth = grow(1000, FILES, || false);
    growth.findings.assert_none();
    assert!(growth.most_files <= FILES, "{growth:?}");
}
