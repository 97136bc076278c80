//! What the commands leave behind, and what they leave alone.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use support::{clip, damage, files, fill_clip, json, open, tcx, workplace};
use tcx_store::Keys;

/// Every file below a folder: its path, when it was changed, its bytes.
fn traces(dir: &Path) -> Vec<(String, SystemTime, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let (path, metadata) = entry.map(|entry| (entry.path(), entry.metadata().unwrap())).unwrap();
        let bytes = if metadata.is_dir() { Vec::new() } else { fs::read(&path).unwrap() };
        found.push((path.display().to_string(), metadata.modified().unwrap(), bytes));
        if metadata.is_dir() {
            found.extend(traces(&path));
        }
    }
    found.sort();
    found
}

#[test]
fn looking_writes_nothing() {
    let dir = workplace();
    // Without its index runs: who needs one makes it elsewhere.
    for run in files(&dir.path().join("cache/clip_v1"), "run-") {
        fs::remove_file(run).unwrap();
    }
    let cache = dir.path().join("cache");
    let before = traces(&cache);
    let looks: [&[&str]; 18] = [
        &["ls", "cache"],
        &["info", "cache", "clip_v1"],
        &["head", "cache", "clip_v1"],
        &["show", "cache", "clip_v1", "cat"],
        &["stats", "cache"],
        &["coverage", "cache", "clip_v1", "ids.txt"],
        &["verify", "cache"],
        &["gc", "cache", "--dry-run"],
        &["prune", "cache", "--max-size", "1", "--dry-run"],
        &["rm", "cache", "clip_v1", "--dry-run"],
        &["rm", "cache", "clip_v1", "--id", "cat", "--dry-run"],
        &["export", "cache", "clip_v1", "--to", "out.arrow"],
        &["merge", "cache", "other", "--dry-run"],
        &["pack", "cache", "clip_v1", "--to", "clip.tcxpack"],
        &["unpack", "cache", "clip.tcxpack", "--dry-run"],
        &["diff", "cache", "other"],
        &["report", "cache", "--to", "report.html"],
        &["top", "cache"],
    ];
    for look in looks {
        let output = tcx(dir.path(), look);
        assert!(output.status.code().unwrap() < 2, "{look:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(traces(&cache) == before, "{look:?} left a trace");
    }
}

#[test]
fn a_program_that_uses_the_cache_notices_what_it_should_and_nothing_else() {
    let dir = workplace();
    let store = open(&dir.path().join("cache"), clip("224"));
    let missing = |ids: &[&str]| {
        store.refresh().unwrap();
        store.lookup(Keys::text(ids, 0).unwrap()).unwrap().distinct_missing_positions()
    };
    let ids = ["cat", "dog", "horse"];
    assert_eq!(missing(&ids), [0_usize; 0]);
    json(dir.path(), &["compact", "cache"]);
    json(dir.path(), &["gc", "cache", "--older-than", "0s", "--yes"]);
    json(dir.path(), &["verify", "cache"]);
    assert_eq!(missing(&ids), [0_usize; 0]);
    json(dir.path(), &["rm", "cache", "clip_v1", "--id", "dog", "--yes"]);
    assert_eq!(missing(&ids), [1]);
    fill_clip(&store, &ids);
    json(dir.path(), &["merge", "cache", "other"]);
    assert_eq!(missing(&["cat", "dog", "horse", "zebra"]), [0_usize; 0]);
    assert_eq!(json(dir.path(), &["stats", "cache", "clip_v1"])["rows"], 4);
    json(dir.path(), &["rm", "cache", "clip_v1", "--yes"]);
    assert!(!dir.path().join("cache/clip_v1").exists());
    assert_eq!(json(dir.path(), &["ls", "cache"])["modules"].as_array().unwrap().len(), 1);
}

#[test]
fn rows_that_are_as_old_as_those_that_were_invalidated_by_their_age_are_not_merged() {
    let dir = workplace();
    let store = open(&dir.path().join("cache"), clip("224"));
    store.invalidate_older_than(SystemTime::now() + Duration::from_secs(1)).unwrap();
    drop(store);
    let merge = |revive: &[&str]| {
        let merged = json(dir.path(), &[&["merge", "cache", "other"], revive].concat());
        let modules = merged["modules"].as_array().unwrap();
        let module = modules.iter().find(|own| own["module"] == "clip_v1").unwrap();
        ["added", "invalidated"].map(|name| module[name].as_u64().unwrap())
    };
    let [added, invalidated] = merge(&[]);
    assert!(added == 0 && invalidated > 0, "{added} added, {invalidated} left out");
    assert_eq!(merge(&["--revive"]), [invalidated, 0]);
}

#[test]
fn rows_come_back_from_every_format_as_they_were() {
    for format in ["out.arrow", "out.arrows", "out.parquet", "out"] {
        let dir = workplace();
        json(dir.path(), &["export", "cache", "clip_v1", "--to", format]);
        json(dir.path(), &["rm", "cache", "clip_v1", "--prefix", "c", "--yes"]);
        let added = json(dir.path(), &["import", "cache", "clip_v1", format]);
        let counts = ["added", "present", "invalidated"].map(|name| added[name].as_u64().unwrap());
        assert_eq!(counts, [0, 2, 1], "what was invalidated does not come back by itself");
        let added = json(dir.path(), &["import", "cache", "clip_v1", format, "--revive"]);
        assert_eq!(added["added"], 1);
        json(dir.path(), &["export", "cache", "resnet50_v1", "--to", "resnet.arrow"]);
        json(dir.path(), &["rm", "cache", "resnet50_v1", "--id", "7", "--yes"]);
        json(dir.path(), &["import", "cache", "resnet50_v1", "resnet.arrow", "--revive"]);
        // Another folder that was filled the same way.
        let again = workplace();
        let same = json(dir.path(), &["diff", "cache", again.path().join("cache").to_str().unwrap()]);
        for (module, rows) in [(0, 3), (1, 1000)] {
            assert_eq!(same["modules"][module]["same"], rows, "{same:#}");
        }
        assert_eq!(tcx(dir.path(), &["verify", "cache"]).status.code(), Some(0));
    }
}

#[test]
fn a_merge_makes_a_cache_only_if_it_is_told_to() {
    let dir = workplace();
    let merge = ["merge", "copy", "cache", "--create"];
    assert_eq!(json(dir.path(), &[&merge[..], &["--dry-run"]].concat())["modules"][1]["added"], 1000);
    assert!(!dir.path().join("copy").exists());
    assert_eq!(json(dir.path(), &merge)["modules"][0]["added"], 3);
    assert_eq!(json(dir.path(), &["diff", "cache", "copy"])["modules"][1]["same"], 1000);
    assert_eq!(json(dir.path(), &merge)["modules"][0]["present"], 3);
}

#[test]
fn rows_of_another_identity_are_not_imported() {
    let dir = workplace();
    for to in ["out.arrow", "out"] {
        json(dir.path(), &["export", "another", "clip_v1", "--to", to]);
        let output = tcx(dir.path(), &["import", "cache", "clip_v1", to]);
        assert_eq!(output.status.code(), Some(5));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("rows of another identity"), "{said}");
    }
}

#[test]
fn a_segment_is_not_imported_since_no_checksum_would_be_looked_at() {
    let dir = workplace();
    for segment in files(&dir.path().join("other/clip_v1"), "seg-") {
        damage(&segment);
        for _ in 0..2 {
            let output = tcx(dir.path(), &["import", "cache", "clip_v1", segment.to_str().unwrap()]);
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(output.status.code() == Some(5) && said.contains("`tcx merge`"), "{said}");
            // Nor a sound one.
            damage(&segment);
        }
    }
    assert_eq!(json(dir.path(), &["ls", "cache"])["modules"][0]["rows"], 3);
}

#[test]
fn rows_before_a_change_that_cannot_be_verified_are_told() {
    let dir = workplace();
    json(dir.path(), &["rm", "cache", "clip_v1", "--id", "zebra", "--yes"]);
    damage(&dir.path().join("cache/clip_v1/change-00000000000000000001"));
    for command in [
        &["export", "cache", "clip_v1", "--to", "out.arrow"][..],
        &["head", "cache", "clip_v1"],
        &["merge", "other", "cache", "--module", "clip_v1", "--dry-run"],
        &["merge", "cache", "other", "--module", "clip_v1", "--dry-run"],
        &["diff", "other", "cache", "--module", "clip_v1"],
    ] {
        let output = tcx(dir.path(), command);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        assert!(output.status.code() == Some(1) && said.contains("a change cannot be verified"), "{said}");
    }
    assert_eq!(json(dir.path(), &["export", "cache", "clip_v1", "--to", "out"])["sound_changes"], false);
}

#[test]
fn a_segment_that_cannot_be_read_counts_as_a_damaged_one() {
    let dir = workplace();
    let segment = &files(&dir.path().join("cache/clip_v1"), "seg-")[0];
    fs::remove_file(segment).unwrap();
    // No plain file: opening it fails, also for root.
    fs::create_dir(segment).unwrap();
    for command in ["ls", "stats"] {
        assert_eq!(json(dir.path(), &[command, "cache"])["modules"][0]["damaged_segments"], 1, "{command}");
    }
    let report = json(dir.path(), &["report", "cache", "--to", "report.html"]);
    assert_eq!(report["modules"][0]["damaged_segments"], 1);
    let output = tcx(dir.path(), &["export", "cache", "clip_v1", "--to", "out.arrow"]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_disk_that_is_in_the_way_is_not_taken_for_damage() {
    let dir = workplace();
    let identity = dir.path().join("cache/clip_v1/change-00000000000000000000");
    fs::remove_file(&identity).unwrap();
    fs::create_dir(&identity).unwrap();
    for command in ["ls", "verify"] {
        assert_eq!(tcx(dir.path(), &[command, "cache"]).status.code(), Some(6), "{command}");
    }
}

#[test]
fn a_damaged_file_is_an_error_and_no_panic() {
    let dir = workplace();
    for (to, step) in [("out.arrow", 131), ("out.arrows", 191), ("out.parquet", 191)] {
        json(dir.path(), &["export", "cache", "clip_v1", "--to", to]);
        let bytes = fs::read(dir.path().join(to)).unwrap();
        for at in (0..bytes.len()).step_by(step) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            fs::write(dir.path().join("damaged"), damaged).unwrap();
            let output = tcx(dir.path(), &["import", "cache", "clip_v1", "damaged"]);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.code().is_some_and(|code| code < 100), "{to}, byte {at}: {said}");
        }
    }
}

#[test]
fn invalidating_says_how_many_rows_matched_and_fails_for_none() {
    let dir = workplace();
    let rm = |arguments: &[&str]| {
        let output = tcx(dir.path(), &[&["rm", "cache", "clip_v1"], arguments].concat());
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let (code, said) = rm(&["--id", "cat", "--prefix", "ho", "--prefix", "x", "--dry-run"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("clip_v1: would be invalidated: cat (1 row)\n"), "{said}");
    assert!(said.contains("clip_v1: would be invalidated: ho… (1 row)\n"), "{said}");
    assert!(said.contains("clip_v1: would be invalidated: x… (no rows)\n"), "{said}");
    let (code, said) = rm(&["--id", "cat"]);
    assert!(code == Some(7) && said.contains("invalidate 1 id of `clip_v1` (1 row)"), "{said}");
    let json = json(
        dir.path(),
        &["rm", "cache", "clip_v1", "--id", "cat", "--id", "unicorn", "--prefix", "c", "--yes"],
    );
    assert_eq!((&json["rows"], &json["unmatched"]), (&1.into(), &serde_json::json!(["unicorn"])));
    let (code, said) = rm(&["--id", "cat", "--yes"]);
    assert!(code == Some(1) && said.contains("invalidated: cat (no rows)"), "{said}");
    assert_eq!(rm(&["--prefix", "do", "--yes"]).0, Some(0));
}

#[test]
fn one_module_is_merged_and_compared_by_its_name() {
    let dir = workplace();
    for arguments in [&["clip_v1"][..], &["--module", "clip_v1"]] {
        let merged =
            json(dir.path(), &[&["merge", "copy", "cache", "--create", "--dry-run"], arguments].concat());
        let modules = merged["modules"].as_array().unwrap();
        assert_eq!((modules.len(), &modules[0]["module"]), (1, &"clip_v1".into()));
        let compared = json(dir.path(), &[&["diff", "cache", "cache"], arguments].concat());
        assert_eq!(compared["modules"].as_array().unwrap().len(), 1);
    }
    let both = tcx(dir.path(), &["merge", "copy", "cache", "clip_v1", "--module", "clip_v1"]);
    assert_eq!(both.status.code(), Some(2));
}

#[test]
fn a_report_is_one_page_that_needs_nothing_else() {
    let dir = workplace();
    let store = open(&dir.path().join("cache"), clip("224"));
    fill_clip(&store, &["<script src=x>", "rabbit", "a & b"]);
    let said = json(dir.path(), &["report", "cache", "--to", "report.html"]);
    let page = fs::read_to_string(dir.path().join("report.html")).unwrap();
    for foreign in ["http:", "https:", "<script", "<link", "<img", "url(", "@import"] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    assert!(page.contains("<title>&lt;script src=x&gt;: 140</title>"), "the point of an id tells the id");
    assert_eq!(page.matches("class=\"point\"").count(), 6, "NaN has no place in the plane");
    let clip = &said["modules"][0];
    assert_eq!((&clip["sampled"], &clip["growth"][2]["rows"]), (&6.into(), &6.into()));
    let counts = |histogram: &serde_json::Value| {
        let counts = histogram["counts"].as_array().unwrap();
        counts.iter().map(|count| count.as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!(counts(&clip["outputs"][0]["norms"]), 6);
    assert_eq!(clip["outputs"][0]["nan"], serde_json::Value::Null);
    let resnet = &said["modules"][1]["outputs"][0];
    assert_eq!((&resnet["norms"], counts(&resnet["nan"])), (&serde_json::Value::Null, 1000));
    let sampled =
        json(dir.path(), &["report", "cache", "resnet50_v1", "--sample", "10", "--to", "small.html"]);
    assert_eq!(sampled["modules"][0]["sampled"], 10);
    assert_eq!(tcx(dir.path(), &["report", "cache", "--to", "report.html"]).status.code(), Some(2));
}

#[test]
fn completions_and_manual_pages_are_written() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = tcx(dir.path(), &["completions", shell]).stdout;
        assert!(String::from_utf8(script).unwrap().contains("coverage"), "{shell}");
    }
    assert!(String::from_utf8(tcx(dir.path(), &["man"]).stdout).unwrap().starts_with(".ie"));
    assert!(tcx(dir.path(), &["man", "--to", "pages"]).status.success());
    assert!(dir.path().join("pages/tcx-verify.1").exists());
}
