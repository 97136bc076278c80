//! Damaged files cost a miss and a count, never a wrong row and never a panic.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::fs;
use std::path::{Path, PathBuf};

use tcx_engine_tests::{Dice, check, files, get_or_compute, lookup, open, options, row, spec};
use tcx_store::{Compression, ErrorKind, Keys, Options, Store};

const IDS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn filled() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    get_or_compute(&store, &IDS);
    store.flush().unwrap();
    dir
}

fn overwrite(path: &Path, bytes: &[u8]) {
    // Sealed files are read-only: what damages one replaces it. A damaged run has been removed by who met it.
    if path.exists() {
        fs::remove_file(path).unwrap();
    }
    fs::write(path, bytes).unwrap();
}

/// What is found is right.
fn found(dir: &Path) -> usize {
    let store = open(dir);
    let found: Vec<&str> = IDS.into_iter().filter(|id| lookup(&store, &[id]).missing() == 0).collect();
    check(&lookup(&store, &found), &found);
    if found.len() < IDS.len() {
        assert_eq!(store.stats().damaged_segments, 1);
    }
    found.len()
}

#[test]
fn a_changed_byte_anywhere_in_a_segment_is_a_miss_or_has_no_effect() {
    let dir = filled();
    let [segment] = &files(dir.path(), "seg-")[..] else { panic!("one segment") };
    let bytes = fs::read(segment).unwrap();
    let mut missed = 0;
    for at in (0..bytes.len()).step_by(7) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        overwrite(segment, &damaged);
        // A small segment is one checksum block and a tail, all of which every row needs.
        let found = found(dir.path());
        assert!(found == 0 || found == IDS.len(), "byte {at}");
        missed += usize::from(found == 0);
    }
    assert!(missed > bytes.len() / 7 * 9 / 10, "checksums cover every byte: {missed}");
    overwrite(segment, &bytes);
    assert_eq!(found(dir.path()), IDS.len());
}

#[test]
fn a_damaged_column_costs_nothing_to_who_reads_others() {
    let dir = tempfile::tempdir().unwrap();
    let ids: Vec<String> = (0..3000).map(|i| format!("id{i}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let store = open(dir.path());
    get_or_compute(&store, &ids);
    store.flush().unwrap();
    drop(store);
    let [segment] = &files(dir.path(), "seg-")[..] else { panic!("one segment") };
    let mut bytes = fs::read(segment).unwrap();
    let (vector, ..) = row(ids[1500]);
    let at = bytes.windows(vector.len()).position(|window| window == vector).unwrap();
    bytes[at] ^= 1;
    overwrite(segment, &bytes);
    let store = open(dir.path());
    let keys = || Keys::text(&ids, 0).unwrap();
    let rows = store.lookup_leaves(keys(), &[1, 2].into()).unwrap();
    assert_eq!((rows.missing(), store.stats().damaged_segments), (0, 0));
    for (position, id) in ids.iter().enumerate() {
        let (_, number, caption) = row(id);
        assert_eq!(rows.bytes(1, position), number.to_le_bytes());
        assert_eq!(rows.text(2, position).unwrap(), caption);
    }
    // Whoever wants all columns misses the rows of the block, and from then on all: the segment is out of service.
    assert!((1..ids.len()).contains(&store.lookup(keys()).unwrap().missing()));
    assert_eq!(store.stats().damaged_segments, 1);
    assert_eq!(store.lookup(keys()).unwrap().missing(), ids.len());
}

#[test]
fn a_cut_segment_is_a_miss() {
    let dir = filled();
    let [segment] = &files(dir.path(), "seg-")[..] else { panic!("one segment") };
    let bytes = fs::read(segment).unwrap();
    for len in (0..bytes.len()).step_by(41) {
        overwrite(segment, &bytes[..len]);
        assert_eq!(found(dir.path()), 0, "cut to {len}");
    }
}

#[test]
fn a_damaged_run_is_made_again() {
    let dir = filled();
    let [run] = &files(dir.path(), "run-")[..] else { panic!("one run") };
    let (run, bytes) = (run.clone(), fs::read(run).unwrap());
    for at in (0..bytes.len()).step_by(5) {
        for other in files(dir.path(), "run-") {
            fs::remove_file(other).unwrap();
        }
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x80;
        fs::write(&run, &damaged).unwrap();
        assert_eq!(found(dir.path()), IDS.len(), "byte {at}");
    }
}

#[test]
fn a_segment_of_another_cache_is_not_served() {
    let (dir, other) = (filled(), tempfile::tempdir().unwrap());
    let store = open(other.path());
    get_or_compute(&store, &["x"]);
    store.flush().unwrap();
    for file in files(other.path(), "seg-").into_iter().chain(files(other.path(), "run-")) {
        fs::copy(&file, dir.path().join("m_v1").join(file.file_name().unwrap())).unwrap();
    }
    let store = open(dir.path());
    assert_eq!(lookup(&store, &["x", "a"]).missing_positions(), [0]);
    assert_eq!(store.stats().damaged_segments, 0, "another instance is no damage");
}

#[test]
fn a_damaged_identity_closes_the_cache_with_a_clear_error() {
    let dir = filled();
    let [change] = &files(dir.path(), "change-")[..] else { panic!("one change") };
    let mut bytes = fs::read(change).unwrap();
    bytes[60] ^= 1;
    overwrite(change, &bytes);
    let error = Store::open(dir.path(), spec("224"), &options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("change-00000000000000000000: its checksum is wrong"), "{error}");
}

#[test]
fn a_read_only_directory_is_read_without_writing_to_it() {
    let dir = filled();
    for run in files(dir.path(), "run-") {
        fs::remove_file(run).unwrap();
    }
    let folder = dir.path().join("m_v1");
    let before = files(dir.path(), "").len();
    let writable = fs::metadata(&folder).unwrap().permissions();
    let mut read_only = writable.clone();
    read_only.set_readonly(true);
    fs::set_permissions(&folder, read_only).unwrap();
    let as_root = fs::write(folder.join("probe"), "").is_ok();
    assert_eq!(found(dir.path()), IDS.len());
    if as_root {
        eprintln!("the superuser can write everywhere: that nothing was written is not shown");
    } else {
        assert_eq!(files(dir.path(), "").len(), before);
    }
    fs::set_permissions(&folder, writable).unwrap();
}

/// A cache of several segments and checksum blocks, and its files with their bytes.
struct Campaign {
    dir: tempfile::TempDir,
    ids: Vec<String>,
    files: Vec<(PathBuf, Vec<u8>)>,
}

impl Campaign {
    fn new() -> Self {
        Self::compressed(Compression::None)
    }

    fn compressed(compression: Compression) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ids: Vec<String> = (0..900).map(|i| format!("id{i}")).collect();
        let options = Options { compression, ..options() };
        let store = Store::open(dir.path(), spec("224"), &options).unwrap();
        for part in ids.chunks(300) {
            get_or_compute(&store, &part.iter().map(String::as_str).collect::<Vec<_>>());
            store.flush().unwrap();
        }
        drop(store);
        let files =
            files(dir.path(), "").into_iter().map(|file| (file.clone(), fs::read(&file).unwrap())).collect();
        Self { dir, ids, files }
    }

    /// What is found with file number `file` as it is now is right; then every file is as it was before.
    fn check(&self, file: usize, what: &str) {
        let (path, bytes) = &self.files[file];
        match Store::open(self.dir.path(), spec("224"), &options()) {
            Ok(store) => {
                // Every twentieth row: all segments and all regions of each.
                let ids: Vec<&str> = self.ids.iter().step_by(20).map(String::as_str).collect();
                let rows = lookup(&store, &ids);
                let missing: Vec<usize> = rows.missing_rows().collect();
                let found: Vec<&str> =
                    (0..ids.len()).filter(|i| missing.binary_search(i).is_err()).map(|i| ids[i]).collect();
                check(&lookup(&store, &found), &found);
                let damaged = store.stats().damaged_segments > 0;
                assert!(
                    missing.is_empty() || damaged,
                    "{what} of {}: misses without a count",
                    path.display()
                );
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{what} of {}: {error}", path.display());
                assert!(path.to_str().unwrap().contains("change-"), "{what} of {}: {error}", path.display());
            }
        }
        overwrite(path, bytes);
        // Runs that were made again.
        for other in files(self.dir.path(), "") {
            if !self.files.iter().any(|(file, _)| *file == other) {
                fs::remove_file(other).unwrap();
            }
        }
    }
}

#[test]
fn ten_thousand_flipped_bits_cost_misses_and_no_wrong_row() {
    let campaign = Campaign::new();
    let mut dice = Dice(0x5eed);
    // Every byte of the first header of each kind of file, then anywhere.
    let headers = (0..campaign.files.len()).flat_map(|file| (0..64).map(move |at| (file, at)));
    let flips: Vec<(usize, usize)> = headers.chain((0..10_000).map(|_| (usize::MAX, 0))).collect();
    for (file, at) in flips {
        let file = if file == usize::MAX { dice.roll(campaign.files.len()) } else { file };
        let mut bytes = campaign.files[file].1.clone();
        let at = if at == 0 { dice.roll(bytes.len()) } else { at.min(bytes.len() - 1) };
        bytes[at] ^= 1 << dice.roll(8);
        overwrite(&campaign.files[file].0, &bytes);
        campaign.check(file, &format!("byte {at}"));
    }
}

#[test]
fn a_thousand_cuts_cost_misses_and_no_wrong_row() {
    let campaign = Campaign::new();
    let mut dice = Dice(0xc07);
    for _ in 0..1000 {
        let file = dice.roll(campaign.files.len());
        let (path, bytes) = &campaign.files[file];
        let len = dice.roll(bytes.len());
        overwrite(path, &bytes[..len]);
        campaign.check(file, &format!("a cut to {len} bytes"));
    }
}

#[test]
fn flipped_bits_of_compressed_files_cost_misses_and_no_wrong_row() {
    for compression in [Compression::Lz4, Compression::Zstd] {
        let campaign = Campaign::compressed(compression);
        let mut dice = Dice(0x219);
        for _ in 0..300 {
            let file = dice.roll(campaign.files.len());
            let (path, bytes) = &campaign.files[file];
            let (mut bytes, at) = (bytes.clone(), dice.roll(bytes.len()));
            bytes[at] ^= 1 << dice.roll(8);
            overwrite(path, &bytes);
            campaign.check(file, &format!("{compression:?}, byte {at}"));
        }
    }
}
