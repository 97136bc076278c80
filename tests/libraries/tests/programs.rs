//! Programs with different tensor libraries share a cache.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::path::Path;
use std::process::Command;

use tch::{Device, nn};
use tcx::Frozen;
use tcx_library_tests::{INPUTS, OUTPUTS};

/// Each caches the module `shared_projection_v1`.
const PROGRAMS: &[&str] = &[
    env!("CARGO_BIN_EXE_with_tch"),
    env!("CARGO_BIN_EXE_with_ndarray"),
    #[cfg(feature = "candle")]
    env!("CARGO_BIN_EXE_with_candle"),
];

/// The number of forward passes, then the rows and the identity.
fn run(program: &str, cache: &Path, weights: &Path) -> (usize, String) {
    let ran = Command::new(program).args([cache, weights]).output().unwrap();
    assert!(ran.status.success(), "{program}: {}", String::from_utf8_lossy(&ran.stderr));
    let printed = String::from_utf8(ran.stdout).unwrap();
    let (computed, rest) = printed.split_once('\n').unwrap();
    (computed.parse().unwrap(), rest.to_owned())
}

#[test]
fn what_a_program_with_one_library_has_computed_programs_with_the_others_find() {
    let dir = tempfile::tempdir().unwrap();
    let weights = dir.path().join("fc.safetensors");
    let build = |p: &nn::Path<'_>| nn::linear(p, INPUTS as i64, OUTPUTS as i64, nn::LinearConfig::default());
    Frozen::build(nn::VarStore::new(Device::Cpu), build).unwrap().save(&weights).unwrap();
    for (place, program) in PROGRAMS.iter().enumerate() {
        let cache = dir.path().join(place.to_string());
        let (computed, expected) = run(program, &cache, &weights);
        assert!(computed > 0, "{program}");
        for other in PROGRAMS {
            let found = run(other, &cache, &weights);
            assert_eq!(found, (0, expected.clone()), "{other} reads what {program} has computed");
        }
    }
}
