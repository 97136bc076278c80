//! A cache that grows by small flushes for a long time.

use tcx_engine_tests::growth::grow;

#[test]
fn a_thousand_small_flushes_leave_a_logarithmic_number_of_files() {
    let growth = grow(1000, || false);
    growth.findings.assert_none();
    assert!(growth.most_files <= 40, "{growth:?}");
}
