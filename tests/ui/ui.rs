//! What the compiler says about mistakes: one error for each, at the user's own token, with the remedy.
//!
//! After a change, `TRYBUILD=overwrite cargo test -p tcx-ui-tests` updates the messages; read them.

/// The messages are those of the compiler that `rust-toolchain.toml` pins.
#[test]
fn every_mistake_is_one_error_with_its_remedy() {
    trybuild::TestCases::new().compile_fail("*/*.rs");
}
