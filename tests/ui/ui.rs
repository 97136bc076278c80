//! What the compiler says about mistakes: one error for each, at the user's own token, with the remedy.
//!
//! After a change, `TRYBUILD=overwrite cargo test -p tcx-ui-tests` updates the messages; read them.

/// The messages are those of the compiler that `rust-toolchain.toml` pins.
#[cfg(not(feature = "candle"))]
#[test]
fn every_mistake_is_one_error_with_its_remedy() {
    trybuild::TestCases::new().compile_fail("*/*.rs");
}

/// Those of a library that `cargo xtask backends` builds.
#[cfg(feature = "candle")]
#[test]
fn every_mistake_with_candle_is_one_error_with_its_remedy() {
    trybuild::TestCases::new().compile_fail("features/candle/*.rs");
}
