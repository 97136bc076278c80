//! What `cargo xtask demo` needs before it compiles anything.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::process::{Command, Output};

/// The demo on a machine without a C++ compiler. Nothing is compiled: the program that takes the place of Cargo does nothing.
fn demo(backend: &str) -> Output {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_xtask"));
    demo.args(["demo", "--backend", backend, "--model", "nowhere"]);
    demo.env("CXX", "no-such-compiler").env("CARGO", "true").output().unwrap()
}

#[test]
fn only_libtorch_needs_a_cpp_compiler() {
    let without_libtorch = demo("candle");
    assert!(without_libtorch.status.success(), "{}", String::from_utf8_lossy(&without_libtorch.stderr));
    let with_libtorch = demo("tch");
    assert!(!with_libtorch.status.success());
    assert!(String::from_utf8_lossy(&with_libtorch.stderr).contains("no C++ compiler"));
}
