//! The commands that read, on an S3 server.

#![cfg(feature = "remote")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "support/store.rs"]
mod store;
mod support;

use std::process::Command;

use store::{json, printed, segments, segments_received, tcx, text};
use support::{TCX, clip, files, fill_clip, open, remove_runs, workplace};
use tcx_test_s3::Server;

#[test]
fn commands_that_read_show_of_a_url_what_they_show_of_the_directory() {
    let (server, dir) = (Server::start(), workplace());
    let url = server.url("features");
    printed(&server, dir.path(), &["push", "cache", &url]);
    remove_runs(&dir.path().join("cache"));
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
fn a_report_on_a_url_names_the_url() {
    let (server, dir) = (Server::start(), workplace());
    let url = server.url("features");
    printed(&server, dir.path(), &["push", "cache", &url]);
    printed(&server, dir.path(), &["report", &url, "--to", "report.html"]);
    let page = std::fs::read_to_string(dir.path().join("report.html")).unwrap();
    assert!(page.contains("/tcx/features") && !page.contains("mirrors"));
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
