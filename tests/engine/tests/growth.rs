//! A cache that grows by small flushes for a long time.

use std::time::Duration;

use tcx_engine_tests::{files, get_or_compute, options, spec};
use tcx_store::{Options, Store};

/// The most files that are there after some of so many flushes of a row each.
fn most_files(flushes: usize) -> Result<usize, Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let options = Options { collect_after: Duration::ZERO, ..options() };
    let store = Store::open(dir.path(), spec("224"), &options)?;
    let mut most = 0;
    for number in 0..flushes {
        let id = format!("id{number}");
        assert_eq!(get_or_compute(&store, &[&id]), 1);
        store.flush()?;
        if number % 50 == 0 {
            store.collect(Duration::ZERO)?;
            most = most.max(files(dir.path(), "").len());
        }
    }
    drop(store);
    let store = Store::open(dir.path(), spec("224"), &options)?;
    let ids: Vec<String> = (0..flushes).map(|number| format!("id{number}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    assert_eq!(get_or_compute(&store, &ids), 0);
    println!("{flushes} flushes: at most {most} files, {:?}", store.stats());
    Ok(most)
}

#[test]
#[ignore = "takes minutes: `cargo test -p tcx-engine-tests -- --ignored --nocapture`"]
fn twenty_thousand_small_flushes_leave_a_logarithmic_number_of_files()
-> Result<(), Box<dyn std::error::Error>> {
    // Three of each class of size, an input or two that was just replaced, a run for each; far from 20,000.
    let most = most_files(20_000)?;
    assert!(most <= 60, "{most} files");
    Ok(())
}

#[test]
fn a_thousand_small_flushes_leave_a_logarithmic_number_of_files() -> Result<(), Box<dyn std::error::Error>> {
    let most = most_files(1000)?;
    assert!(most <= 40, "{most} files");
    Ok(())
}
