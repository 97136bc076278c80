//! The commands on an S3 server.

#![cfg(feature = "remote")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "support/store.rs"]
mod store;
mod support;

use std::path::Path;
use std::process::Command;

use store::{json, printed, segments, tcx, text};
use support::{TCX, clip, files, fill_clip, open, workplace};
use tcx_test_s3::{Fault, Operation, Server};

#[test]
fn modules_are_pushed_and_pulled_and_synced() {
    let (server, dir) = (Server::start(), workplace());
    let url = server.url("features");
    let pushed = tcx(&server, dir.path(), &["push", "cache", &url]);
    let shown = text(&pushed.stdout);
    assert_eq!(pushed.status.code(), Some(0), "{}", text(&pushed.stderr));
    assert!(shown.contains("clip_v1: sent ") && shown.contains("resnet50_v1: sent "), "{shown}");
    assert!(shown.contains("PUT or LIST requests and "), "{shown}");
    let pulled = tcx(&server, dir.path(), &["pull", "copy", &url, "clip_v1", "--json"]);
    assert_eq!(pulled.status.code(), Some(0), "{}", text(&pulled.stderr));
    let json: serde_json::Value = serde_json::from_slice(&pulled.stdout).unwrap();
    assert_eq!(json["modules"][0]["module"], "clip_v1");
    assert_eq!(json["modules"][0]["direction"], "pull");
    assert!(json["requests"]["gets"].as_u64().unwrap() > 2);
    let difference = tcx(&server, dir.path(), &["diff", "cache", "copy", "clip_v1"]);
    assert_eq!(difference.status.code(), Some(0), "{}", text(&difference.stdout));
    let removed = tcx(&server, dir.path(), &["rm", "copy", "clip_v1", "--id", "cat", "--yes"]);
    assert_eq!(removed.status.code(), Some(0), "{}", text(&removed.stderr));
    let synced = tcx(&server, dir.path(), &["sync", "copy", &url]);
    assert_eq!(synced.status.code(), Some(0), "{}", text(&synced.stderr));
    assert!(text(&synced.stdout).contains("resnet50_v1: received "), "{}", text(&synced.stdout));
    let pulled = tcx(&server, dir.path(), &["pull", "cache", &url]);
    assert_eq!(pulled.status.code(), Some(0), "{}", text(&pulled.stderr));
    std::fs::write(dir.path().join("ids.txt"), "cat\ndog\n").unwrap();
    let coverage = tcx(&server, dir.path(), &["coverage", "cache", "clip_v1", "ids.txt", "--json"]);
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&coverage.stdout).unwrap()["present"], 1);
}

#[test]
fn mistakes_have_exit_codes_and_no_credentials_in_them() {
    let (server, dir) = (Server::start(), workplace());
    let run = |arguments: &[&str]| {
        let output = tcx(&server, dir.path(), arguments);
        (output.status.code(), text(&output.stderr))
    };
    let url = server.url("features");
    let with_password = url.replace("http://", "http://user:hunter2@");
    for (arguments, code, part) in [
        (["pull", "copy", &url], 3, "no modules in http://"),
        (["push", "cache", "other"], 2, "expected the URL of an object store"),
        (["push", "cache", "ftp://host/x"], 2, "expected s3://"),
        (["push", "cache", &with_password], 2, "credentials belong into the environment"),
        (["push", "nothing", &url], 3, "no directory nothing"),
        (["push", "cache", &server.url("").replace("/tcx/", "/none/x")], 3, "no such object or bucket"),
    ] {
        let (found, error) = run(&arguments);
        assert_eq!(found, Some(code), "{arguments:?}: {error}");
        assert!(error.contains(part) && !error.contains("hunter2"), "{error}");
    }
    assert_eq!(run(&["push", "cache", &url]).0, Some(0));
    let (code, error) = run(&["push", "another", &url]);
    assert_eq!(code, Some(5), "{error}");
    assert!(error.contains("another cache of this name"), "{error}");
}

#[test]
fn commands_that_read_show_of_a_url_what_they_show_of_the_directory() {
    let (server, dir) = (Server::start(), workplace());
    let url = server.url("features");
    printed(&server, dir.path(), &["push", "cache", &url]);
    let commands: [&[&str]; 4] = [
        &["head", "cache", "clip_v1"],
        &["coverage", "cache", "resnet50_v1", "numbers.txt"],
        &["stats", "cache", "resnet50_v1", "--json"],
        &["verify", "cache", "clip_v1"],
    ];
    std::fs::write(dir.path().join("numbers.txt"), "1\n2\n").unwrap();
    for command in commands {
        let of_url: Vec<&str> =
            command.iter().map(|word| if *word == "cache" { url.as_str() } else { word }).collect();
        let [of_directory, of_url] =
            [command, &of_url].map(|command| printed(&server, dir.path(), command).replace("cache/", ""));
        // Records of sessions are not copied.
        let own = |text: &str| text.split("\"sessions\"").next().unwrap_or_default().to_owned();
        assert_eq!(own(&of_directory), own(&of_url), "{command:?}");
    }
    printed(&server, dir.path(), &["diff", "cache", &url]);
    printed(&server, dir.path(), &["export", &url, "clip_v1", "--to", "clip.csv"]);
    assert!(std::fs::read_to_string(dir.path().join("clip.csv")).unwrap().contains("a picture of a horse"));
    printed(&server, dir.path(), &["merge", "copy", &url, "clip_v1", "--create"]);
    printed(&server, dir.path(), &["diff", "cache", "copy", "clip_v1"]);
}

#[test]
fn a_listing_of_a_url_receives_no_segment() {
    let (server, dir) = (Server::start(), workplace());
    let url = server.url("features");
    printed(&server, dir.path(), &["push", "cache", &url]);
    let shown = printed(&server, dir.path(), &["ls", &url]);
    assert!(shown.contains("clip_v1") && shown.contains("caption: String"), "{shown}");
    let listed = json(&server, dir.path(), &["ls", &url]);
    let clip = &listed["modules"][0];
    assert_eq!(
        (&clip["module"], &clip["ids"], &clip["segments"]),
        (&"clip_v1".into(), &"String".into(), &2.into())
    );
    let sizes =
        segments(&server, "clip_v1").iter().map(|key| server.object(key).unwrap().len()).sum::<usize>();
    assert!(clip["bytes"].as_u64().unwrap() >= sizes as u64, "{listed}");
    let gets = server.counts().gets;
    printed(&server, dir.path(), &["ls", &url]);
    let received = server.counts().gets - gets;
    assert!(received <= 4, "{received} objects were read");
}

#[test]
fn rows_are_invalidated_and_segments_joined_and_removed_in_a_store() {
    let (server, dir) = (Server::start(), workplace());
    let url = server.url("features");
    let run = |arguments: &[&str]| printed(&server, dir.path(), arguments);
    run(&["push", "cache", &url]);
    assert!(run(&["head", &url, "clip_v1"]).contains("cat"));
    let asked = run(&["rm", &url, "clip_v1", "--id", "cat", "--dry-run"]);
    assert!(asked.contains("would be invalidated: cat (1 row)"), "{asked}");
    assert!(run(&["head", &url, "clip_v1"]).contains("cat"));
    run(&["rm", &url, "clip_v1", "--id", "cat", "--yes"]);
    let before = segments(&server, "clip_v1");
    assert_eq!(run(&["compact", &url, "clip_v1"]), "clip_v1: 2 → 1 segment\n");
    let kept = run(&["gc", &url, "clip_v1", "--yes"]);
    assert!(kept.contains("removed 0 files"), "machines read them for an hour: {kept}");
    run(&["gc", &url, "--older-than", "0s", "--yes"]);
    let after = segments(&server, "clip_v1");
    assert!(after.len() == 1 && !before.contains(&after[0]), "{before:?}, {after:?}");
    let removed = run(&["rm", &url, "clip_v1", "--prefix", "hor", "--yes"]);
    assert!(removed.contains("invalidated: hor… (1 row)"), "{removed}");
    let left = run(&["head", &url, "clip_v1"]);
    assert!(left.contains("dog") && !left.contains("cat") && !left.contains("horse"), "{left}");
    // The mirror has the same segments.
    assert_eq!(json(&server, dir.path(), &["stats", &url, "clip_v1"])["modules"][0]["segments"], 1);
    for (arguments, part) in [
        (&["gc", &url, "--dry-run"][..], "--dry-run works on directories"),
        (&["gc", &url], "without confirmation"),
        (&["rm", &url, "clip_v1", "--yes"], "from directories only"),
        (&["verify", &url, "--repair", "--yes"], "--repair works on directories"),
        (&["info", &url, "clip_v2"], "no module `clip_v2` in http://"),
        (&["rm", &url, "clip_v2", "--id", "cat", "--yes"], "its modules are clip_v1, resnet50_v1"),
    ] {
        let error = text(&tcx(&server, dir.path(), arguments).stderr);
        assert!(error.contains(part), "{arguments:?}: {error}");
    }
}

#[test]
fn an_older_copy_of_a_module_is_read_as_it_is() {
    let (server, dir) = (Server::start(), workplace());
    let url = server.url("features");
    let run = |arguments: &[&str]| printed(&server, dir.path(), arguments);
    run(&["push", "cache", &url]);
    let before: Vec<_> = server.keys().into_iter().map(|key| (server.object(&key).unwrap(), key)).collect();
    run(&["rm", &url, "clip_v1", "--id", "cat", "--yes"]);
    assert!(!run(&["head", &url, "clip_v1"]).contains("cat"));
    for key in server.keys() {
        server.remove(&key);
    }
    for (bytes, key) in &before {
        server.put(key, bytes);
    }
    assert!(run(&["head", &url, "clip_v1"]).contains("cat"));
}

#[test]
fn what_is_verified_at_a_url_is_what_the_store_has_now() {
    let (server, dir) = (Server::start(), workplace());
    let url = server.url("features");
    printed(&server, dir.path(), &["push", "cache", &url]);
    assert!(printed(&server, dir.path(), &["verify", &url]).contains("clip_v1: good"));
    let damaged = segments(&server, "clip_v1").remove(0);
    let mut bytes = server.object(&damaged).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    server.put(&damaged, &bytes);
    let output = tcx(&server, dir.path(), &["verify", &url]);
    let (shown, name) = (text(&output.stdout), damaged.rsplit('/').next().unwrap());
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(shown.contains("clip_v1: 1 damaged file") && shown.contains(name), "{shown}");
    assert!(shown.contains("resnet50_v1: good") && !shown.contains("--repair"), "{shown}");
    // A command that reads says what it does not have.
    let output = tcx(&server, dir.path(), &["stats", &url, "clip_v1"]);
    let said = text(&output.stderr);
    assert!(said.contains(name) && said.contains("is left out"), "{said}");
}

#[test]
fn a_module_that_takes_the_place_of_another_one_is_read_instead() {
    let (server, dir) = (Server::start(), workplace());
    let url = server.url("features");
    printed(&server, dir.path(), &["push", "cache", &url]);
    assert!(printed(&server, dir.path(), &["head", &url, "clip_v1"]).contains("horse"));
    for key in server.keys() {
        server.remove(&key);
    }
    printed(&server, dir.path(), &["push", "another", &url]);
    let shown = printed(&server, dir.path(), &["head", &url, "clip_v1"]);
    assert!(shown.contains("dog") && !shown.contains("horse"), "{shown}");
    assert_eq!(json(&server, dir.path(), &["stats", &url])["modules"].as_array().unwrap().len(), 1);
}

#[test]
fn a_module_under_another_name_is_not_changed_at_a_url() {
    let (server, dir) = (Server::start(), workplace());
    let url = server.url("features");
    printed(&server, dir.path(), &["push", "cache", &url, "clip_v1"]);
    for key in server.keys() {
        server.put(&key.replace("clip_v1", "clip_v2"), &server.object(&key).unwrap());
    }
    let before = server.keys();
    for arguments in [
        &["rm", &url, "clip_v2", "--id", "cat", "--yes"][..],
        &["compact", &url, "clip_v2"],
        &["gc", &url, "clip_v2", "--older-than", "0s", "--yes"],
    ] {
        let output = tcx(&server, dir.path(), arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{arguments:?}: {error}");
        assert!(error.contains("the folder clip_v2 contains the module `clip_v1`"), "{error}");
    }
    assert_eq!(server.keys(), before);
    assert!(printed(&server, dir.path(), &["head", &url, "clip_v1"]).contains("cat"));
}

#[test]
fn a_module_that_cannot_be_received_does_not_keep_others_from_being_verified() {
    let (server, dir) = (Server::start(), workplace());
    let url = server.url("features");
    printed(&server, dir.path(), &["push", "cache", &url]);
    for id in ["cat", "dog"] {
        printed(&server, dir.path(), &["rm", &url, "clip_v1", "--id", id, "--yes"]);
    }
    server.remove("features/clip_v1/change-00000000000000000001");
    for arguments in [&["verify", &url][..], &["verify", &url, "clip_v1"]] {
        let output = tcx(&server, dir.path(), arguments);
        let (shown, error) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(4), "{shown}{error}");
        assert_eq!(shown.contains("resnet50_v1: good"), arguments.len() == 2, "{shown}{error}");
        assert!(error.contains("cannot verify clip_v1") && error.contains("is missing"), "{error}");
    }
}

#[test]
fn a_file_of_another_module_is_no_damage_at_a_url() {
    let (server, dir) = (Server::start(), workplace());
    let url = server.url("features");
    printed(&server, dir.path(), &["push", "cache", &url, "clip_v1"]);
    let foreign = files(&dir.path().join("another/clip_v1"), "seg-").remove(0);
    let name = foreign.file_name().unwrap().to_str().unwrap();
    server.put(&format!("features/clip_v1/{name}"), &std::fs::read(&foreign).unwrap());
    std::fs::copy(&foreign, dir.path().join("cache/clip_v1").join(name)).unwrap();
    let of = |place: &str| json(&server, dir.path(), &["verify", place, "clip_v1"])["modules"][0].clone();
    let (of_directory, of_url) = (of("cache"), of(&url));
    assert_eq!(of_directory["foreign"][0]["file"], name);
    for part in ["foreign", "damage", "rows"] {
        assert_eq!(of_url[part], of_directory[part], "{of_url}");
    }
    let output = tcx(&server, dir.path(), &["stats", &url, "clip_v1"]);
    assert!(!text(&output.stderr).contains("left out"), "{}", text(&output.stderr));
}

#[test]
fn two_commands_that_read_a_url_at_once_wait_for_each_other() {
    let (server, dir) = (Server::start(), workplace());
    let url = server.url("features");
    printed(&server, dir.path(), &["push", "cache", &url]);
    let count = 4;
    let shown: Vec<String> = std::thread::scope(|scope| {
        let show = || printed(&server, dir.path(), &["head", &url, "clip_v1"]);
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(show)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(shown.iter().all(|shown| shown.contains("cat")), "{shown:?}");
}

#[test]
fn a_command_that_waits_for_another_one_says_so() {
    let (server, dir) = (Server::start(), workplace());
    let url = server.url("features");
    printed(&server, dir.path(), &["push", "cache", &url]);
    printed(&server, dir.path(), &["head", &url, "clip_v1"]);
    let mirrors = std::fs::read_dir(dir.path().join("near/mirrors")).unwrap();
    let mirror = mirrors.map(|entry| entry.unwrap().path()).next().unwrap();
    let stage = mirror.join(".tcx-pull/clip_v1");
    std::fs::create_dir_all(&stage).unwrap();
    let lock = std::fs::File::create(stage.join("lock")).unwrap();
    lock.lock().unwrap();
    let mut head = Command::new(TCX);
    head.args(["head", &url, "clip_v1"]).env("TCX_NEAR_TIER", dir.path().join("near"));
    for (name, value) in server.settings() {
        head.env(name.to_uppercase(), value);
    }
    let mut head =
        head.stderr(std::process::Stdio::piped()).stdout(std::process::Stdio::null()).spawn().unwrap();
    let mut note = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(head.stderr.take().unwrap()), &mut note)
        .unwrap();
    assert!(note.contains("note: another process copies `clip_v1`"), "{note}");
    lock.unlock().unwrap();
    assert_eq!(head.wait().unwrap().code(), Some(0));
}

#[test]
fn a_row_that_two_machines_have_computed_counts_once() {
    let (server, dir) = (Server::start(), workplace());
    let url = server.url("features");
    printed(&server, dir.path(), &["push", "cache", &url, "clip_v1"]);
    for copy in ["one", "two"] {
        printed(&server, dir.path(), &["pull", copy, &url, "clip_v1"]);
    }
    for copy in ["one", "two"] {
        fill_clip(&open(&dir.path().join(copy), clip("224")), &["zebra"]);
        printed(&server, dir.path(), &["push", copy, &url, "clip_v1"]);
    }
    let shown =
        printed(&server, dir.path(), &["rm", &url, "clip_v1", "--id", "zebra", "--prefix", "z", "--dry-run"]);
    assert!(shown.contains("zebra (1 row)") && shown.contains("z… (1 row)"), "{shown}");
}

#[test]
fn segments_that_are_joined_and_not_sent_are_an_error() {
    let (server, dir) = (Server::start(), workplace());
    let url = server.url("features");
    printed(&server, dir.path(), &["push", "cache", &url, "clip_v1"]);
    (0..100).for_each(|_| server.fail_next(Operation::Put, "/seg-", Fault::Denied));
    let output = tcx(&server, dir.path(), &["compact", &url, "clip_v1"]);
    assert_eq!(output.status.code(), Some(6), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn a_target_that_cannot_be_written_is_refused_before_anything_is_received() {
    let (server, dir) = (Server::start(), workplace());
    let url = server.url("features");
    printed(&server, dir.path(), &["push", "cache", &url]);
    std::fs::write(dir.path().join("rows.csv"), "id").unwrap();
    let before = server.counts().all();
    for (arguments, part) in [
        (&["export", &url, "clip_v1", "--to", "rows.csv"][..], "rows.csv exists"),
        (&["pack", &url, "clip_v1", "--to", "rows.csv"], "rows.csv exists"),
        (&["report", &url, "--to", "rows.csv"], "rows.csv exists"),
        (&["merge", "nothing", &url], "--create"),
    ] {
        let error = text(&tcx(&server, dir.path(), arguments).stderr);
        assert!(error.contains(part), "{arguments:?}: {error}");
    }
    assert_eq!(server.counts().all(), before);
}

#[test]
fn a_report_on_a_url_names_the_url() {
    let (server, dir) = (Server::start(), workplace());
    let url = server.url("features");
    printed(&server, dir.path(), &["push", "cache", &url]);
    printed(&server, dir.path(), &["report", &url, "--to", "report.html"]);
    let page = std::fs::read_to_string(dir.path().join("report.html")).unwrap();
    assert!(page.contains("/tcx/features") && !page.contains("mirrors"));
}

#[test]
fn rows_are_merged_unpacked_and_imported_into_a_store() {
    let (server, dir) = (Server::start(), workplace());
    let run = |arguments: &[&str]| printed(&server, dir.path(), arguments);
    let url = server.url("features");
    let refused = tcx(&server, dir.path(), &["merge", &url, "cache"]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(text(&refused.stderr).contains("pass --create"), "{}", text(&refused.stderr));
    let merged = run(&["merge", &url, "cache", "resnet50_v1", "--create", "--dry-run"]);
    assert!(merged.contains("resnet50_v1 (new): ") && merged.contains("would be added"), "{merged}");
    assert!(server.keys().is_empty(), "{:?}", server.keys());
    run(&["merge", &url, "cache", "resnet50_v1", "--create"]);
    run(&["diff", "cache", &url, "resnet50_v1"]);
    run(&["pack", "cache", "clip_v1", "--to", "clip.tcxpack"]);
    let unpacked = run(&["unpack", &url, "clip.tcxpack"]);
    assert!(unpacked.contains("clip_v1 (new): "), "{unpacked}");
    run(&["diff", "cache", &url, "clip_v1"]);
    run(&["export", "cache", "clip_v1", "--to", "clip"]);
    run(&["rm", &url, "clip_v1", "--id", "cat", "--yes"]);
    let left_out = run(&["import", &url, "clip_v1", "clip"]);
    assert!(left_out.contains("1 row left out"), "{left_out}");
    let revived = run(&["import", &url, "clip_v1", "clip", "--revive"]);
    assert!(revived.contains("1 row added"), "{revived}");
    run(&["diff", "cache", &url, "clip_v1"]);
    let missing = tcx(&server, dir.path(), &["import", &url, "other_v1", "clip"]);
    assert!(text(&missing.stderr).contains("flush one batch with it"), "{}", text(&missing.stderr));
}

#[test]
fn a_job_in_a_store_is_watched_without_its_rows_and_its_requests_have_a_price() {
    let (server, dir) = (Server::start(), workplace());
    let url = server.url("features");
    printed(&server, dir.path(), &["push", "cache", &url]);
    // All of these ids have rows, so the command is not run.
    let ids = (0..1000).map(|id| format!("{id}\n")).collect::<Vec<_>>().concat();
    std::fs::write(dir.path().join("ids.txt"), ids).unwrap();
    let work = ["--json", "work", &url, "resnet50_v1", "--ids", "ids.txt", "--", "false"];
    let worked: serde_json::Value = serde_json::from_str(&printed(&server, dir.path(), &work)).unwrap();
    assert_eq!((&worked["runs"], &worked["workers"][0]["found"]), (&0.into(), &1000.into()));
    std::fs::remove_dir_all(dir.path().join("near")).unwrap();
    let watched = json(&server, dir.path(), &["jobs", &url, "--prices", "1000,0"]);
    let job = &watched["jobs"][0];
    assert_eq!(
        (&job["module"], &job["ended"], &job["finished"]),
        (&"resnet50_v1".into(), &true.into(), &1000.into())
    );
    let requests = job["puts_and_lists"].as_u64().unwrap();
    // A lease of each of 16 parts, at the least.
    assert!(requests >= 16 && job["gets"].as_u64().unwrap() > 0, "{job}");
    assert_eq!(job["price"].as_f64(), Some(requests as f64));
    assert_eq!(segments_received(dir.path()), 0);
    let shown = printed(&server, dir.path(), &["jobs", &url, "resnet50_v1"]);
    assert!(shown.contains(" PUT or LIST requests and "), "{shown}");
}

/// How many segments the near tier has.
fn segments_received(dir: &Path) -> usize {
    fn count(dir: &Path) -> usize {
        let entries = std::fs::read_dir(dir).into_iter().flatten().map(Result::unwrap);
        entries
            .map(|entry| match entry.path() {
                path if path.is_dir() => count(&path),
                path => usize::from(path.to_string_lossy().contains("/files/seg-")),
            })
            .sum()
    }
    count(&dir.join("near"))
}

#[test]
fn a_part_is_finished_when_its_rows_are_in_the_store() {
    let (server, dir) = (Server::start(), workplace());
    let url = server.url("features");
    printed(&server, dir.path(), &["push", "other", &url, "clip_v1"]);
    std::fs::write(dir.path().join("ids.txt"), "cat\ndog\nhorse\n").unwrap();
    // As a command of `work` that ends with status 0 although its flush has failed.
    (0..100).for_each(|_| server.fail_next(Operation::Put, "/seg-", Fault::Denied));
    assert_ne!(tcx(&server, dir.path(), &["merge", &url, "cache", "clip_v1"]).status.code(), Some(0));
    // What it leases cannot be given up while the store does not answer.
    let work = ["--json", "work", &url, "clip_v1", "--ids", "ids.txt", "--expiry", "1s", "--", "false"];
    let waits = tcx(&server, dir.path(), &work);
    let json: serde_json::Value = serde_json::from_slice(&waits.stdout).unwrap();
    assert_eq!((waits.status.code(), &json["runs"]), (Some(1), &0.into()), "{json}");
    let why = json["failure"].as_str().unwrap();
    assert!(why.contains("the rows of work range 0 are not all durable in http://"), "{why}");
    assert_eq!(json["workers"][0]["ranges"], 0);
    assert_eq!(segments(&server, "clip_v1").len(), 1);
    server.forget_planned();
    let deadline = std::time::Instant::now() + std::time::Duration::from_mins(2);
    while tcx(&server, dir.path(), &work).status.code() != Some(0) {
        assert!(std::time::Instant::now() < deadline);
    }
    assert!(segments(&server, "clip_v1").len() > 1);
}

#[test]
fn commands_keep_as_many_copies_as_the_environment_allows() {
    let (server, dir) = (Server::start(), workplace());
    let url = server.url("features");
    printed(&server, dir.path(), &["push", "cache", &url, "clip_v1"]);
    std::fs::write(dir.path().join("ids.txt"), "cat\nhorse\n").unwrap();
    let work = |near_bytes: &str| {
        let mut work = Command::new(TCX);
        work.args(["work", &url, "clip_v1", "--ids", "ids.txt", "--", "false"]).current_dir(dir.path());
        work.env("TCX_NEAR_TIER", dir.path().join("near")).env("TCX_NEAR_BYTES", near_bytes);
        work.envs(server.settings().map(|(name, value)| (name.to_uppercase(), value)));
        let output = work.output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    let (code, error) = work("many");
    assert!(code == Some(2) && error.contains("TCX_NEAR_BYTES is `many`"), "{code:?}: {error}");
    let (code, error) = work("1K");
    assert_eq!((code, segments_received(dir.path())), (Some(0), 0), "{error}");
    let (code, error) = work("1G");
    assert!(code == Some(0) && segments_received(dir.path()) > 0, "{error}");
}
