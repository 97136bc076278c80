//! The trials that no other test makes in small, for seconds.

use std::process::Command;

#[test]
fn a_crowd_a_bad_disk_failing_system_calls_and_many_keys_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("report.json");
    let mut stress = Command::new(env!("CARGO_BIN_EXE_stress"));
    stress.args(["--minutes", "0.2", "--report"]).arg(&report);
    for trial in ["crowd", "readers", "full", "faults", "keys"] {
        stress.args(["--only", trial]);
    }
    let output = stress.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    for (name, trial) in report["trials"].as_object().unwrap() {
        let number = |what: &str| trial[what].as_u64().unwrap();
        match trial["skipped"].as_str() {
            // The trial needs permissions and tools that a machine may lack.
            Some(why) => tcx_test_skips::skip(name, why),
            None => assert!(number("tried") > 0 && number("lost") + number("wrong") == 0, "{name}: {trial}"),
        }
    }
}
