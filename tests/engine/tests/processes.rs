//! Several processes on one directory, with no coordination between them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use tcx_engine_tests::{Dice, check, files, lookup, open, soak_batch};

fn worker(args: &[&str], dir: &Path) -> Child {
    let (command, rest) = args.split_first().unwrap();
    Command::new(env!("CARGO_BIN_EXE_worker"))
        .arg(command)
        .arg(dir)
        .args(rest)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The worker's output, which must end well.
fn output(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    out.into_owned()
}

#[test]
fn four_processes_fill_one_directory_and_a_fifth_finds_every_row() {
    let dir = tempfile::tempdir().unwrap();
    let ranges = [("0", "600"), ("200", "800"), ("400", "1000"), ("0", "1000")];
    let workers = ranges.map(|(from, to)| worker(&["fill", "id", from, to], dir.path()));
    for worker in workers {
        assert!(output(worker).contains("durable"));
    }
    assert_eq!(output(worker(&["check", "id", "1000"], dir.path())).trim(), "0", "rows are missing");
    assert_eq!(files(dir.path(), "change-").len(), 1);
    assert!(files(dir.path(), "tmp-").is_empty());
}

#[test]
fn a_process_that_opened_before_the_writers_sees_their_rows_without_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let mut watcher = worker(&["watch", "id", "500"], dir.path());
    let mut lines = BufReader::new(watcher.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let writers =
        [("0", "300"), ("200", "500")].map(|(from, to)| worker(&["fill", "id", from, to], dir.path()));
    for writer in writers {
        output(writer);
    }
    assert_eq!(lines.next().unwrap().unwrap(), "found");
    assert!(watcher.wait().unwrap().success());
}

#[test]
fn of_two_identities_that_start_at_once_on_an_empty_directory_one_is_refused() {
    for _ in 0..5 {
        let dir = tempfile::tempdir().unwrap();
        let workers =
            ["224", "448"].map(|size| (size, worker(&["fill", "id", "0", "200", size], dir.path())));
        let ends = workers.map(|(size, child)| {
            let output = child.wait_with_output().unwrap();
            (size, output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
        });
        let refused: Vec<_> = ends.iter().filter(|(_, code, _)| *code == Some(3)).collect();
        let [(loser, _, said)] = refused[..] else { panic!("one is refused: {ends:?}") };
        let winner = if *loser == "224" { "448" } else { "224" };
        assert!(said.contains(&format!("`size`: {winner} in the cache, {loser} in the code")), "{said}");
        assert!(ends.iter().any(|(size, code, _)| *size == winner && *code == Some(0)), "{ends:?}");
        assert_eq!(files(dir.path(), "change-").len(), 1);
        if winner == "224" {
            assert_eq!(
                output(worker(&["check", "id", "200"], dir.path())).trim(),
                "0",
                "the cache stays good"
            );
        }
    }
}

/// Every row that one of the processes has asked for is there, and right.
fn soak(seconds: u64) {
    let dir = tempfile::tempdir().unwrap();
    let seeds = ["11", "22", "33", "44"];
    let workers = seeds.map(|seed| worker(&["soak", seed, &seconds.to_string()], dir.path()));
    let steps = workers.map(|worker| {
        let said = output(worker);
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
    println!("{steps:?} batches of up to 100 rows, {:?}", store.stats());
}

#[test]
fn random_reads_and_writes_of_four_processes_lose_nothing() {
    soak(3);
}

#[test]
#[ignore = "takes two minutes: `cargo test -p tcx-engine-tests -- --ignored --nocapture`"]
fn random_reads_and_writes_of_four_processes_for_two_minutes_lose_nothing() {
    soak(120);
}

#[test]
fn kill_9_at_random_moments_of_a_fill_loses_no_acknowledged_row() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..30 {
        let prefix = format!("r{round}-");
        let mut filler = worker(&["fill", &prefix, "0", "1000000"], dir.path());
        // Any moment from before the first flush to well after several.
        let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().subsec_nanos();
        let moment = Duration::from_micros(u64::from(nanos / 1000 % 150_000));
        std::thread::sleep(moment);
        filler.kill().unwrap();
        let mut said = String::new();
        filler.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        filler.wait().unwrap();
        let durable =
            said.lines().rev().find_map(|line| line.strip_prefix("durable ")?.parse().ok()).unwrap_or(0);
        let ids: Vec<String> = (0..durable).map(|i| format!("{prefix}{i}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let store = open(dir.path());
        let rows = lookup(&store, &ids);
        assert_eq!(rows.missing(), 0, "round {round}, killed after {moment:?}, {durable} rows acknowledged");
        check(&rows, &ids);
        assert_eq!(store.stats().damaged_segments, 0);
    }
    assert!(files(dir.path(), "seg-").len() > 1, "something was written at all");
}
