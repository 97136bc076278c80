//! Workers whose work is done by a command (`tcx work`), and watching them (`tcx jobs`).

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{TCX, fill_resnet, json, open, resnet, tcx};

/// The variable that makes a test of this file the command of a worker: what it does.
const ROLE: &str = "TCX_TEST_ROLE";

/// The command: computes the ids on its standard input, and notes them in `log`. It is no test.
#[test]
fn the_command_of_a_worker() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let ids: Vec<i64> = std::io::stdin().lines().map(|line| line.unwrap().parse().unwrap()).collect();
    let range = std::env::var("TCX_RANGE").unwrap();
    let note = |what: &str| {
        let text = ids.iter().map(|id| format!("{what} {range} {id}\n")).collect::<Vec<_>>().concat();
        let mut log = File::options().create(true).append(true).open("log").unwrap();
        log.write_all(text.as_bytes()).unwrap();
    };
    match &*role {
        "fails" if range == "3" => std::process::exit(9),
        "forgets" => return,
        "hangs" => {
            note("hangs");
            sleep(Duration::from_mins(2));
        }
        _ => {}
    }
    note("computes");
    let store = open(Path::new("cache"), resnet());
    for id in ids {
        fill_resnet(&store, id..id + 1);
    }
}

/// A worker with the command above.
fn worker(dir: &Path, role: &str, settings: &[&str]) -> Command {
    let mut worker = Command::new(TCX);
    worker
        .args(["work", "cache", "resnet50_v1", "--ids", "ids.txt", "--range-size", "20", "--json"])
        .args(settings);
    worker.arg("--").arg(std::env::current_exe().unwrap());
    worker.args(["--exact", "the_command_of_a_worker", "--quiet"]);
    worker.env(ROLE, role).current_dir(dir).stdout(Stdio::piped()).stderr(Stdio::piped());
    worker
}

fn place(ids: i64) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let text = (0..ids).map(|id| format!("{id}\n")).collect::<Vec<_>>().concat();
    fs::write(dir.path().join("ids.txt"), text).unwrap();
    dir
}

/// How often each id was computed for each work range; the run that makes the module has none.
fn computed(dir: &Path) -> BTreeMap<(String, i64), usize> {
    let mut found = BTreeMap::new();
    for line in fs::read_to_string(dir.join("log")).unwrap_or_default().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if words[0] == "computes" {
            *found.entry((words[1].to_owned(), words[2].parse().unwrap())).or_default() += 1;
        }
    }
    found
}

fn said(output: &Output) -> (Option<i32>, Value, String) {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let json = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (output.status.code(), json, errors)
}

fn is_complete(dir: &Path) -> bool {
    json(dir, &["coverage", "cache", "resnet50_v1", "ids.txt"])["missing"].as_array().unwrap().is_empty()
}

#[test]
fn workers_run_a_command_for_the_missing_ids_of_each_part_and_make_a_module_that_is_not_there() {
    let dir = place(210);
    let workers: Vec<Child> = (0..3).map(|_| worker(dir.path(), "computes", &[]).spawn().unwrap()).collect();
    let ended: Vec<_> = workers.into_iter().map(|own| said(&own.wait_with_output().unwrap())).collect();
    let (mut reported, mut runs) = (0, 0);
    for (code, json, errors) in &ended {
        assert_eq!(
            (*code, json["ids"].as_u64(), &json["failure"]),
            (Some(0), Some(210), &Value::Null),
            "{errors}"
        );
        reported += json["workers"][0]["computed"].as_u64().unwrap();
        runs += json["runs"].as_u64().unwrap();
    }
    let found = computed(dir.path());
    let of_ranges = found.iter().filter(|((range, _), _)| !range.is_empty());
    assert!(
        of_ranges.clone().all(|((range, id), count)| *count == 1 && range.parse() == Ok(id / 20)),
        "{found:?}"
    );
    // The first one was computed to make the module.
    assert_eq!((of_ranges.count(), reported), (209, 209));
    assert!(runs == 11 && is_complete(dir.path()));
    // A call after the end looks everything up, and runs nothing.
    let again = said(&worker(dir.path(), "fails", &[]).output().unwrap());
    assert_eq!(
        (again.0, &again.1["runs"], &again.1["workers"][0]["found"]),
        (Some(0), &0.into(), &210.into())
    );
}

#[test]
fn a_worker_whose_command_fails_ends_and_others_take_over_its_part_at_once() {
    let dir = place(100);
    fill_resnet(&open(&dir.path().join("cache"), resnet()), 0..1);
    let failed = said(&worker(dir.path(), "fails", &[]).output().unwrap());
    let why = failed.1["failure"].as_str().unwrap();
    assert!(failed.0 == Some(1) && why.contains("work range 3 (exit status: 9)"), "{failed:?}");
    assert!(failed.2.contains("the command failed in work range 3"), "{failed:?}");
    let began = Instant::now();
    let done = said(&worker(dir.path(), "computes", &[]).output().unwrap());
    assert!(done.0 == Some(0) && is_complete(dir.path()), "{done:?}");
    assert!(began.elapsed() < Duration::from_mins(1), "it has not waited for the expiry time");
    let jobs = json(dir.path(), &["jobs", "cache"]);
    let [job] = &jobs["jobs"].as_array().unwrap()[..] else { panic!("{jobs}") };
    assert_eq!(
        (&job["module"], &job["ended"], &job["finished"]),
        (&"resnet50_v1".into(), &true.into(), &100.into())
    );
    let states: Vec<_> = job["workers"].as_array().unwrap().iter().map(|own| own["state"].clone()).collect();
    assert_eq!(states, ["left", "left"]);
    let shown = String::from_utf8(tcx(dir.path(), &["jobs", "cache"]).stdout).unwrap();
    assert!(
        shown.starts_with("resnet50_v1, job warm: 100 of 100 rows (100.0 %), ended, 2 workers, 2 left\n"),
        "{shown}"
    );
}

#[test]
fn a_part_without_rows_is_not_reported_although_the_command_has_succeeded() {
    let dir = place(100);
    let made = said(&worker(dir.path(), "forgets", &[]).output().unwrap());
    assert!(made.0 == Some(1) && made.2.contains("there is no module `resnet50_v1` in cache"), "{made:?}");
    fill_resnet(&open(&dir.path().join("cache"), resnet()), 0..1);
    let forgot = said(&worker(dir.path(), "forgets", &[]).output().unwrap());
    assert!(forgot.0 == Some(1) && forgot.2.contains("have no row, the first is \""), "{forgot:?}");
    assert_eq!(forgot.1["workers"][0]["ranges"], 0);
    assert!(!is_complete(dir.path()));
}

#[test]
fn a_worker_that_is_asked_to_stop_stops_its_command_and_leaves() {
    let dir = place(100);
    fill_resnet(&open(&dir.path().join("cache"), resnet()), 0..1);
    let working = worker(dir.path(), "hangs", &[]).spawn().unwrap();
    let log = dir.path().join("log");
    let deadline = Instant::now() + Duration::from_mins(1);
    while !log.exists() {
        assert!(Instant::now() < deadline);
        sleep(Duration::from_millis(10));
    }
    // While it works, it is seen.
    let jobs = json(dir.path(), &["jobs", "cache", "resnet50_v1"]);
    assert_eq!(jobs["jobs"][0]["workers"][0]["state"], "working", "{jobs}");
    assert_eq!((&jobs["jobs"][0]["leased_ranges"], &jobs["jobs"][0]["ended"]), (&1.into(), &false.into()));
    Command::new("kill").arg(working.id().to_string()).status().unwrap();
    let stopped = said(&working.wait_with_output().unwrap());
    assert_eq!((stopped.0, &stopped.1["stopped"]), (Some(1), &true.into()), "{stopped:?}");
    let done = said(&worker(dir.path(), "computes", &[]).output().unwrap());
    assert!(done.0 == Some(0) && is_complete(dir.path()), "{done:?}");
}

/// A worker whose command is a shell that runs another one, which notes the signals that it gets; in a process group, as a shell with a
/// terminal starts it. Waits until it runs.
fn shell(dir: &Path) -> Child {
    let inner = "trap 'sleep 0.3; echo TERM >> signals; exit 3' TERM; trap 'echo INT >> signals' INT
        : > started
        for _ in $(seq 600); do sleep 0.1; done";
    fs::write(dir.join("inner.sh"), inner).unwrap();
    let mut worker = Command::new(TCX);
    worker.args(["work", "cache", "resnet50_v1", "--ids", "ids.txt", "--json", "--"]);
    worker.args(["sh", "-c", "sh inner.sh; exit 3"]).current_dir(dir).process_group(0);
    let worker = worker.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_mins(1);
    while !dir.join("started").exists() {
        assert!(Instant::now() < deadline);
        sleep(Duration::from_millis(10));
    }
    worker
}

#[test]
fn a_request_to_stop_reaches_what_a_shell_has_started_once_and_is_waited_for() {
    for is_ctrl_c in [false, true] {
        let dir = place(100);
        fill_resnet(&open(&dir.path().join("cache"), resnet()), 0..1);
        let worker = shell(dir.path());
        let mut kill = Command::new("kill");
        if is_ctrl_c {
            // A terminal sends it to the whole group.
            kill.args(["-INT", "--", &format!("-{}", worker.id())]);
        } else {
            kill.arg(worker.id().to_string());
        }
        assert!(kill.status().unwrap().success());
        let stopped = said(&worker.wait_with_output().unwrap());
        assert_eq!((stopped.0, &stopped.1["stopped"]), (Some(1), &true.into()), "{stopped:?}");
        assert_eq!(
            fs::read_to_string(dir.path().join("signals")).unwrap_or_default(),
            "TERM\n",
            "{is_ctrl_c}"
        );
    }
}

#[test]
fn settings_are_refused_as_by_workers_of_the_library() {
    let dir = place(3);
    fill_resnet(&open(&dir.path().join("cache"), resnet()), 0..3);
    let run = |arguments: &[&str], ids: &str| {
        let work = ["work", "cache", "resnet50_v1", "--ids", ids];
        let output = tcx(dir.path(), &[&work, arguments, &["--", "true"]].concat());
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (expiry, shown) in [("0s", "0ns"), ("1ms", "1ms"), ("99ms", "99ms")] {
        let (code, errors) = run(&["--expiry", expiry], "ids.txt");
        let expected = format!("--expiry is {shown}: expected 100 ms or more");
        assert!(code == Some(2) && errors.contains(&expected), "{errors}");
    }
    assert_eq!(run(&["--expiry", "100ms"], "ids.txt").0, Some(0));
    let (code, errors) = run(&["--range-size", "0"], "ids.txt");
    assert!(code == Some(2) && errors.contains("--range-size is 0: expected 1 or more"), "{errors}");
    // 2^20 work ranges are possible, of which the last one may be shorter.
    let most = 1_u64 << 20;
    let text = (0..=most).map(|id| format!("{id}\n")).collect::<Vec<_>>().concat();
    fs::write(dir.path().join("many.txt"), &text).unwrap();
    let (code, errors) = run(&["--range-size", "1"], "many.txt");
    let expected = "--range-size is 1, which makes 1048577 work ranges of 1048577 ids: at most 1048576 are possible; set 2 or more";
    assert!(code == Some(2) && errors.contains(expected), "{errors}");
    // The first id has no row: the command runs, which the setting does not keep from it.
    let text = (0..most).map(|id| format!("{}\n", id + 3)).collect::<Vec<_>>().concat();
    fs::write(dir.path().join("many.txt"), text).unwrap();
    let (code, errors) = run(&["--range-size", "1"], "many.txt");
    assert!(code == Some(1) && errors.contains("have no row"), "{errors}");
}

#[test]
fn workers_with_other_ids_are_refused_and_mistakes_are_named() {
    let dir = place(100);
    fill_resnet(&open(&dir.path().join("cache"), resnet()), 0..1);
    let run = |arguments: &[&str]| {
        let output = tcx(dir.path(), &[&["work", "cache", "resnet50_v1"], arguments].concat());
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, errors) = run(&["--ids", "none.txt", "--", "true"]);
    assert!(code == Some(3) && errors.contains("none.txt"), "{errors}");
    let (code, errors) = run(&["--ids", "ids.txt", "--", "no-such-program"]);
    assert!(code == Some(3) && errors.contains("cannot run no-such-program"), "{errors}");
    let (code, errors) = run(&["--ids", "ids.txt"]);
    assert!(code == Some(2) && errors.contains("COMMAND"), "{errors}");
    fs::write(dir.path().join("names.txt"), "cat\n").unwrap();
    let (code, errors) = run(&["--ids", "names.txt", "--", "true"]);
    assert!(code == Some(2) && errors.contains("expected an integer, found \"cat\""), "{errors}");
}
