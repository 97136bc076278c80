//! `tcx pack` and `tcx unpack`: one file with the live rows of a module.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::fs;
use std::path::Path;

use support::python::run;
use support::{clip, damage, files, fill_clip, json, open, tcx, workplace};
use tcx_store::{Column, ColumnType, DType, DYNAMIC_DIM, Field, Identity, KeyType, Keys, Spec};

/// The bytes of the packed module.
fn packed(dir: &Path, cache: &str, module: &str) -> Vec<u8> {
    let to = dir.join("some.tcxpack");
    json(dir, &["pack", cache, module, "--to", "some.tcxpack"]);
    let bytes = fs::read(&to).unwrap();
    fs::remove_file(to).unwrap();
    bytes
}

/// Runs `tcx unpack` on these bytes, for a cache that does not exist; the exit code and what it says.
fn unpacked(dir: &Path, bytes: &[u8]) -> (i32, String) {
    fs::write(dir.join("given.tcxpack"), bytes).unwrap();
    let output = tcx(dir, &["unpack", "new", "given.tcxpack", "--create"]);
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (output.status.code().unwrap(), said)
}

#[test]
fn a_packed_module_comes_back_as_it_was() {
    let dir = workplace();
    for (module, rows) in [("clip_v1", 3), ("resnet50_v1", 1000)] {
        let bytes = packed(dir.path(), "cache", module);
        let (code, said) = unpacked(dir.path(), &bytes);
        assert_eq!(code, 0, "{said}");
        let same = json(dir.path(), &["diff", "cache", "new", module]);
        assert_eq!(same["modules"][0]["same"], rows, "{same:#}");
        assert_eq!(packed(dir.path(), "new", module), bytes, "{module}");
        assert_eq!(tcx(dir.path(), &["verify", "new", module]).status.code(), Some(0));
    }
}

#[test]
fn a_packed_module_is_merged_into_the_same_one() {
    let dir = workplace();
    json(dir.path(), &["pack", "cache", "clip_v1", "--to", "clip.tcxpack"]);
    json(dir.path(), &["rm", "other", "clip_v1", "--id", "cat", "--id", "zebra", "--yes"]);
    let unpack = ["unpack", "other", "clip.tcxpack"];
    let planned = json(dir.path(), &[&unpack[..], &["--dry-run"]].concat());
    let done = json(dir.path(), &unpack);
    for said in [&planned, &done] {
        let counts = ["added", "present", "invalidated"].map(|name| said[name].as_u64().unwrap());
        assert_eq!((counts, &said["new"]), ([1, 1, 1], &false.into()), "an invalidated id stays away");
    }
    assert_eq!(json(dir.path(), &[&unpack[..], &["--revive"]].concat())["added"], 1);
    assert_eq!(json(dir.path(), &["stats", "other"])["rows"], 3);
}

#[test]
fn the_same_live_rows_are_the_same_bytes_whatever_their_segments() {
    let (dir, again) = (workplace(), tempfile::tempdir().unwrap());
    let cache = again.path().join("cache");
    // Another order, other segments, a dead row, a row that was computed twice, another program.
    let spec = clip("224");
    let identity = Identity::from_iter(spec.identity().entries().to_vec());
    let provenance = vec![("host".to_owned(), "another-machine".to_owned())];
    let output = ColumnType::Struct(&[
        Field { name: "vector", column: ColumnType::Dense { dtype: DType::F32, shape: &[2, 2] } },
        Field { name: "score", column: ColumnType::Dense { dtype: DType::I64, shape: &[] } },
        Field { name: "caption", column: ColumnType::Text },
    ]);
    let spec = Spec::new("clip_v1", KeyType::Text, &output, identity, provenance).unwrap();
    let store = open(&cache, spec);
    for ids in [&["zebra", "horse"][..], &["dog"], &["cat"]] {
        fill_clip(&store, ids);
    }
    store.invalidate(&Keys::text(["zebra", "dog"], 0).unwrap()).unwrap();
    fill_clip(&store, &["dog"]);
    let bytes = packed(dir.path(), "cache", "clip_v1");
    assert_eq!(packed(again.path(), "cache", "clip_v1"), bytes);
    json(again.path(), &["compact", "cache"]);
    assert_eq!(packed(again.path(), "cache", "clip_v1"), bytes);
    for (text, is_in) in
        [("zebra", false), ("horse", true), ("another-machine", false), ("linux-x86_64", false)]
    {
        let found = bytes.windows(text.len()).any(|window| window == text.as_bytes());
        assert_eq!(found, is_in, "{text}");
    }
}

#[test]
fn a_damaged_or_cut_file_is_refused_and_nothing_is_written() {
    let dir = workplace();
    let bytes = packed(dir.path(), "cache", "clip_v1");
    for at in (0..bytes.len()).step_by(23).chain(bytes.len() - 50..bytes.len()) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x40;
        let (code, said) = unpacked(dir.path(), &damaged);
        assert!(matches!(code, 4 | 5), "byte {at}: {code}, {said}");
        let (code, said) = unpacked(dir.path(), &bytes[..at]);
        assert!(matches!(code, 4 | 5), "{at} bytes: {code}, {said}");
        assert!(!dir.path().join("new").exists(), "byte {at}");
    }
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 1;
    let (code, said) = unpacked(dir.path(), &damaged);
    assert!(code == 4 && said.contains("given.tcxpack is damaged: expected the digest"), "{said}");
    let (code, said) = unpacked(dir.path(), &bytes[..bytes.len() - 1]);
    assert!(code == 4 && said.contains("given.tcxpack is cut off; copy it again"), "{said}");
    let (code, said) = unpacked(dir.path(), &[&bytes[..], b"more"].concat());
    assert!(code == 4 && said.contains("cut off"), "{said}");
}

/// The file with another body or number of rows, and the digest that fits.
fn forged(body: &[u8], rows: u64) -> Vec<u8> {
    let mut file = [body, b"TCXPACK1", &rows.to_le_bytes()].concat();
    let digest = blake3::hash(&file);
    file.extend_from_slice(digest.as_bytes());
    file
}

#[test]
fn a_file_that_no_pack_has_written_is_refused_though_its_digest_is_right() {
    let dir = workplace();
    let bytes = packed(dir.path(), "cache", "clip_v1");
    let body = &bytes[..bytes.len() - 48];
    assert_eq!(forged(body, 3), bytes);
    let replaced = |from: &[u8], to: &[u8]| {
        let at = body.windows(from.len()).position(|window| window == from).unwrap();
        [&body[..at], to, &body[at + from.len()..]].concat()
    };
    let digest = clip("224").digest();
    let cases = [
        (forged(body, 4), "expected 4 rows, found 3"),
        // The ids lie one after the other: `catdoghorse`.
        (forged(&replaced(b"catdog", b"dogcat"), 3), "its rows are not in the order of their ids"),
        (forged(&replaced(b"catdog", b"catcat"), 3), "its rows are not in the order of their ids"),
        (forged(&replaced(b"catdog", b"cat\xffog"), 3), "is malformed"),
        (forged(&replaced(digest.as_bytes(), "0".repeat(64).as_bytes()), 3), "its identity cannot be read"),
        (forged(&replaced(b"caption", b"Caption"), 3), "its columns are not those of its identity"),
        (forged(&body[..body.len() / 2], 3), "is malformed"),
    ];
    for (bytes, why) in cases {
        let (code, said) = unpacked(dir.path(), &bytes);
        assert!(code == 4 && said.contains(why), "{why}: {code}, {said}");
        assert!(!dir.path().join("new").exists());
    }
    for at in (0..body.len()).step_by(29) {
        let mut other = body.to_vec();
        other[at] ^= 0x80;
        let (code, said) = unpacked(dir.path(), &forged(&other, 3));
        assert!(code < 100, "byte {at}: {said}");
        let _ = fs::remove_dir_all(dir.path().join("new"));
    }
}

#[test]
fn foreign_files_are_not_unpacked_and_packed_ones_are_not_imported() {
    let dir = workplace();
    for to in ["out.arrow", "out.arrows", "out.parquet", "out.csv"] {
        json(dir.path(), &["export", "cache", "clip_v1", "--to", to]);
        let (code, said) = unpacked(dir.path(), &fs::read(dir.path().join(to)).unwrap());
        assert!(code == 5 && said.contains("given.tcxpack is not a packed module"), "{to}: {said}");
    }
    assert_eq!(unpacked(dir.path(), b"").0, 5);
    assert_eq!(tcx(dir.path(), &["unpack", "cache", "nowhere.tcxpack"]).status.code(), Some(3));
    let mut newer = packed(dir.path(), "cache", "clip_v1");
    let version = b"tcx.pack";
    let at = newer.windows(version.len()).position(|window| window == version).unwrap();
    // The value lies before or behind its name: the only lone `1` with its length.
    let one = [1, 0, 0, 0, b'1', 0];
    let value = newer.windows(one.len()).enumerate().filter(|(_, window)| *window == one).map(|(at, _)| at);
    let value = value.min_by_key(|value| value.abs_diff(at)).unwrap();
    newer[value + 4] = b'2';
    let (code, said) = unpacked(dir.path(), &forged(&newer[..newer.len() - 48], 3));
    assert!(code == 5 && said.contains("version 2 of packed files is unknown, expected 1"), "{said}");
    json(dir.path(), &["pack", "cache", "clip_v1", "--to", "clip.tcxpack"]);
    let output = tcx(dir.path(), &["import", "cache", "clip_v1", "clip.tcxpack"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(5) && said.contains("`tcx unpack`"), "{said}");
}

#[test]
fn rows_of_another_identity_are_not_unpacked() {
    let dir = workplace();
    json(dir.path(), &["pack", "another", "clip_v1", "--to", "clip.tcxpack"]);
    let before = json(dir.path(), &["stats", "cache"]);
    let output = tcx(dir.path(), &["unpack", "cache", "clip.tcxpack"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(5) && said.contains("`size`: 224 in A, 448 in B"), "{said}");
    assert_eq!(json(dir.path(), &["stats", "cache"]), before);
}

#[test]
fn rows_of_another_identity_are_unpacked_beside_the_module_on_request() {
    let dir = workplace();
    json(dir.path(), &["pack", "another", "clip_v1", "--to", "clip.tcxpack"]);
    let unpack = ["unpack", "cache", "clip.tcxpack", "--separate"];
    let first = json(dir.path(), &unpack);
    let folder = first["module"].as_str().unwrap();
    assert!(folder.starts_with("clip_v1+") && first["new"] == true, "{first}");
    // An identity keeps its folder.
    let again = json(dir.path(), &unpack[..3]);
    assert_eq!(
        (&again["module"], &again["added"], &again["present"]),
        (&first["module"], &0.into(), &first["added"])
    );
    json(dir.path(), &["pack", "cache", folder, "--to", "again.tcxpack"]);
    let files = ["clip.tcxpack", "again.tcxpack"].map(|name| fs::read(dir.path().join(name)).unwrap());
    assert!(files[0] == files[1]);
}

#[test]
fn a_cache_is_created_only_if_that_is_asked_for_and_no_file_is_overwritten() {
    let dir = workplace();
    let pack = ["pack", "cache", "clip_v1", "--to", "clip.tcxpack"];
    json(dir.path(), &pack);
    assert_eq!(tcx(dir.path(), &pack).status.code(), Some(2));
    assert_eq!(tcx(dir.path(), &["unpack", "cahce", "clip.tcxpack"]).status.code(), Some(3));
    let planned = json(dir.path(), &["unpack", "new", "clip.tcxpack", "--create", "--dry-run"]);
    assert_eq!((&planned["added"], &planned["new"]), (&3.into(), &true.into()));
    assert!(!dir.path().join("cahce").exists() && !dir.path().join("new").exists());
}

#[test]
fn rows_that_do_not_verify_are_left_out_and_reported() {
    let dir = workplace();
    for segment in files(&dir.path().join("cache/resnet50_v1"), "seg-") {
        damage(&segment);
    }
    let output = tcx(dir.path(), &["pack", "cache", "resnet50_v1", "--to", "some.tcxpack", "--json"]);
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    let hidden = said["left_out"].as_u64().unwrap() + said["damaged_segments"].as_u64().unwrap();
    assert!(hidden > 0 && said["rows"].as_u64().unwrap() < 1000, "{said:#}");
}

const SCORE: ColumnType = ColumnType::Dense { dtype: DType::F32, shape: &[2] };
const EVERY_KIND: ColumnType = ColumnType::Struct(&[
    Field { name: "score", column: ColumnType::Optional(&SCORE) },
    Field { name: "brain", column: ColumnType::Dense { dtype: DType::BF16, shape: &[2] } },
    Field { name: "mask", column: ColumnType::Dense { dtype: DType::Bool, shape: &[] } },
    Field { name: "tokens", column: ColumnType::Ragged { dtype: DType::I16, shape: &[DYNAMIC_DIM, 2] } },
    Field {
        name: "map",
        column: ColumnType::Ragged { dtype: DType::U8, shape: &[DYNAMIC_DIM, DYNAMIC_DIM] },
    },
    Field { name: "image", column: ColumnType::Bytes },
    Field { name: "caption", column: ColumnType::Optional(&ColumnType::Text) },
]);

/// Fills a cache with rows in two views: one with every value, one with as few as can be.
fn fill_every_kind(cache: &Path) {
    let spec = Spec::new("m_v1", KeyType::Int, &EVERY_KIND, Identity::default(), Vec::new()).unwrap();
    let store = open(cache, spec);
    for view in [7, 0] {
        let mut rows = store.lookup(Keys::ints([300, -5], view)).unwrap();
        let columns = vec![
            Column::dense(&[1.5_f32, -2.0, 0.0, 0.0].map(f32::to_le_bytes).concat()).optional([true, false]),
            // NaN values of which a conversion would change bits.
            Column::dense(&[0x81, 0x7f, 0x00, 0x80, 0x01, 0xff, 0x80, 0x7f]),
            Column::dense(&[1, 0]),
            Column::varying(vec![1, 0, 2, 0, 3, 0, 4, 0], [8, 8]),
            Column::varying(vec![7, 8, 9], [3, 3]),
            Column::dense(&[3_i64, 1, 0, 9].map(i64::to_le_bytes).concat()),
            Column::varying(vec![0xff, 0xd8], [2, 2]),
            Column::text(["ein Käfer", ""]).optional([true, false]),
        ];
        store.insert(&mut rows, &[0, 1], columns).unwrap();
    }
    store.flush().unwrap();
}

#[test]
fn every_kind_of_output_and_every_view_is_packed_bit_for_bit() {
    let dir = tempfile::tempdir().unwrap();
    fill_every_kind(&dir.path().join("cache"));
    let bytes = packed(dir.path(), "cache", "m_v1");
    let (code, said) = unpacked(dir.path(), &bytes);
    assert_eq!((code, said.as_str()), (0, "m_v1 (new): 4 rows added, 0 already present\n"));
    assert_eq!(json(dir.path(), &["diff", "cache", "new"])["modules"][0]["same"], 4);
    assert_eq!(packed(dir.path(), "new", "m_v1"), bytes);
}

#[test]
fn pyarrow_reads_a_packed_module() {
    let dir = tempfile::tempdir().unwrap();
    fill_every_kind(&dir.path().join("cache"));
    json(dir.path(), &["pack", "cache", "m_v1", "--to", "m.tcxpack"]);
    let script = r"
import pyarrow as pa, pyarrow.ipc
table = pa.ipc.open_stream(pa.OSFile('m.tcxpack')).read_all()
table.validate(full=True)
assert table.schema.metadata[b'tcx.module'] == b'm_v1'
print(table['__view'].to_pylist(), table['__key'].to_pylist(), table['caption'].to_pylist())
";
    let Some(said) = run("pyarrow", script, dir.path()) else { return };
    assert_eq!(said, "[0, 0, 7, 7] [-5, 300, -5, 300] [None, 'ein Käfer', None, 'ein Käfer']\n");
}
