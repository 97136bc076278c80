//! Several processes on one directory, with no coordination between them.

use std::path::Path;
use std::time::{Duration, SystemTime};

use tcx_engine_tests::kill::kill_a_filler;
use tcx_engine_tests::{Dice, Worker, Workers, check, files, lookup, open, soak_batch};

fn workers() -> Workers {
    Workers::new([env!("CARGO_BIN_EXE_worker")])
}

fn start(command: &str, dir: &Path, arguments: &[&str]) -> Worker {
    workers().start(command, dir, arguments)
}

#[test]
fn four_processes_fill_one_directory_and_a_fifth_finds_every_row() {
    let dir = tempfile::tempdir().unwrap();
    let ranges = [("0", "600"), ("200", "800"), ("400", "1000"), ("0", "1000")];
    let fillers = ranges.map(|(from, to)| start("fill", dir.path(), &["id", from, to]));
    for filler in fillers {
        assert!(filler.end().well().contains("durable"));
    }
    assert_eq!(start("check", dir.path(), &["id", "1000"]).end().well().trim(), "0", "rows are missing");
    assert_eq!(files(dir.path(), "change-").len(), 1);
    assert!(files(dir.path(), "tmp-").is_empty());
}

#[test]
fn a_process_that_opened_before_the_writers_sees_their_rows_without_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let mut watcher = start("watch", dir.path(), &["id", "500"]);
    assert!(watcher.waits_for("ready"));
    let fillers =
        [("0", "300"), ("200", "500")].map(|(from, to)| start("fill", dir.path(), &["id", from, to]));
    for filler in fillers {
        filler.end().well();
    }
    assert!(watcher.end().well().ends_with("found\n"));
}

#[test]
fn of_two_identities_that_start_at_once_on_an_empty_directory_one_is_refused() {
    for _ in 0..5 {
        let dir = tempfile::tempdir().unwrap();
        let fillers = ["224", "448"].map(|size| (size, start("fill", dir.path(), &["id", "0", "200", size])));
        let ends = fillers.map(|(size, filler)| {
            let ended = filler.end();
            (size, ended.status.code(), ended.said)
        });
        let refused: Vec<_> = ends.iter().filter(|(_, code, _)| *code == Some(3)).collect();
        let [(loser, _, said)] = refused[..] else { panic!("one is refused: {ends:?}") };
        let winner = if *loser == "224" { "448" } else { "224" };
        assert!(said.contains(&format!("`size`: {winner} in the cache, {loser} in the code")), "{said}");
        assert!(ends.iter().any(|(size, code, _)| *size == winner && *code == Some(0)), "{ends:?}");
        assert_eq!(files(dir.path(), "change-").len(), 1);
        if winner == "224" {
            let missing = start("check", dir.path(), &["id", "200"]).end().well();
            assert_eq!(missing.trim(), "0", "the cache stays good");
        }
    }
}

#[test]
fn random_reads_and_writes_of_four_processes_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let seeds = ["11", "22", "33", "44"];
    let soakers = seeds.map(|seed| start("soak", dir.path(), &[seed, "3"]));
    let steps = soakers.map(|soaker| {
        let said = soaker.end().well();
        said.trim().strip_prefix("steps ").unwrap().parse::<usize>().unwrap()
    });
    let store = open(dir.path());
    for (seed, steps) in seeds.iter().zip(steps) {
        let mut dice = Dice(seed.parse().unwrap());
        for _ in 0..steps {
            let ids = soak_batch(&mut dice);
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            check(&lookup(&store, &ids), &ids);
        }
    }
}

#[test]
fn kill_9_at_random_moments_of_a_fill_loses_no_acknowledged_row() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..30 {
        // Any moment from before the first flush to well after several.
        let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().subsec_nanos();
        let moment = Duration::from_micros(u64::from(nanos / 1000 % 150_000));
        let (_, findings) = kill_a_filler(&workers(), dir.path(), &format!("r{round}-"), moment);
        findings.assert_none();
    }
    assert!(files(dir.path(), "seg-").len() > 1, "something was written at all");
}
