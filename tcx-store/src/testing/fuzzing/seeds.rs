//! Valid bytes of every kind, from which tests make others: what a store leaves in its folder.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::LookupOptions;
use crate::segment::fuzzing::{OUTPUT, batch_headers, footer_of};
use crate::sessions;
use crate::storage::name::FileName;
use crate::storage::{LocalStorage, System};
use crate::{Column, Compression, Identity, KeyType, Keys, Lookup, Options, RecomputeSession, Spec, Store};

/// Bytes for one decoder, and a name for them.
pub(super) struct Seed {
    pub(super) decoder: &'static str,
    pub(super) name: String,
    pub(super) bytes: Vec<u8>,
}

fn store(dir: &Path, compression: Compression) -> Store {
    let identity = [("size".to_owned(), "224i64".to_owned())].into_iter().collect::<Identity>();
    let provenance = vec![("tcx".to_owned(), "0.1.0".to_owned())];
    let spec = Spec::new("m_v1", KeyType::Text, &OUTPUT, identity, provenance).unwrap();
    let gc_grace = std::time::Duration::from_hours(1);
    let options = Options { gc_grace, compression, ..Options::default() };
    Store::with_storage(Arc::new(LocalStorage::new(dir.join("m_v1"), System)), spec, &options).unwrap()
}

fn add(store: &Store, rows: Range<u8>, view: u32) {
    insert(store, store.lookup(keys(rows.clone(), view)).unwrap(), rows);
}

/// Adds rows that take the place of others: a tombstone that names a view.
fn recompute(store: &Store, rows: Range<u8>, view: u32) {
    let lookup = store
        .lookup_with(
            keys(rows.clone(), view),
            LookupOptions { recompute: Some(&RecomputeSession::new()), ..LookupOptions::default() },
        )
        .unwrap();
    insert(store, lookup, rows);
}

fn keys(rows: Range<u8>, view: u32) -> Keys {
    Keys::text(rows.map(|row| format!("sample {row}")), view).unwrap()
}

fn insert(store: &Store, mut lookup: Lookup, rows: Range<u8>) {
    let all: Vec<usize> = (0..rows.len()).collect();
    let vectors: Vec<u8> = rows.clone().flat_map(|row| [row; 24]).collect();
    let scores: Vec<u8> = rows.clone().flat_map(|row| i64::from(row).to_le_bytes()).collect();
    let captions = Column::text(rows.clone().map(|row| "é".repeat(usize::from(row) % 5)));
    let maybe = Column::dense(&scores).optional(rows.clone().map(|row| row % 3 > 0));
    // Of four bytes a row.
    let ends: Vec<usize> = (0..=rows.len()).map(|end| end * 4).collect();
    let varying = || Column::varying(vec![7; 4 * rows.len()], ends[1..].iter().copied());
    let columns =
        vec![Column::dense(&vectors), Column::dense(&scores), captions, maybe, varying(), varying()];
    store.insert(&mut lookup, &all, columns).unwrap();
    store.flush().unwrap();
}

/// Seeds of every decoder.
pub(super) fn seeds() -> Vec<Seed> {
    let dir = tempfile::tempdir().unwrap();
    let first = store(dir.path(), Compression::None);
    add(&first, 0..9, 0);
    add(&first, 20..21, 7);
    first.invalidate(&Keys::text(["sample 1", "another"], 0).unwrap()).unwrap();
    add(&first, 0..5, 1);
    first.compact().unwrap();
    first.invalidate_prefix(b"sample 2").unwrap();
    first.invalidate_all().unwrap();
    recompute(&first, 0..3, 7);
    let mut seeds = of_folder(dir.path());
    for round in 0..16 {
        first.invalidate(&Keys::text([format!("sample {round}")], 0).unwrap()).unwrap();
    }
    first.flush().unwrap();
    drop(first);
    let record =
        fs::read_dir(dir.path().join("m_v1").join(sessions::FOLDER)).unwrap().next().unwrap().unwrap();
    let bytes = fs::read(record.path()).unwrap();
    seeds.push(Seed { decoder: "session", name: "session".to_owned(), bytes });
    seeds.extend(of_folder(dir.path()).into_iter().filter(|seed| seed.name.starts_with("merged")));
    for compression in [Compression::Lz4, Compression::Zstd] {
        let dir = tempfile::tempdir().unwrap();
        // Enough for several chunks.
        add(&store(dir.path(), compression), 0..200, 0);
        seeds.extend(of_folder(dir.path()).into_iter().filter(|seed| seed.decoder == "segment"));
    }
    seeds.extend(["resnet50_v1", "notes.txt", ".."].map(|name| {
        let (name, bytes) = (name.replace('.', "-"), name.into());
        Seed { decoder: "name", name, bytes }
    }));
    seeds
}

fn of_folder(dir: &Path) -> Vec<Seed> {
    let mut files: Vec<_> =
        fs::read_dir(dir.join("m_v1")).unwrap().map(|file| file.unwrap().path()).collect();
    files.retain(|path| path.is_file());
    files.sort();
    let mut seeds = Vec::new();
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap();
        // A store that is open and idle removes what is dead.
        let Ok(bytes) = fs::read(&file) else { continue };
        let kind = FileName::parse(name).unwrap();
        let mut seed = |decoder, bytes: &[u8]| {
            // Names of segments and runs are random: seeds are named by what they are.
            let name = match kind {
                FileName::Change(number) => format!("change-{number}"),
                FileName::Merged(_) => "merged".to_owned(),
                _ => format!("{}-{}", &name[..3], bytes.len()),
            };
            seeds.push(Seed { decoder, name, bytes: bytes.to_vec() });
        };
        seed("name", name.as_bytes());
        match kind {
            FileName::Segment(_) => {
                seed("segment", &bytes);
                seed("footer", footer_of(&bytes));
                batch_headers(&bytes).for_each(|header| seed("batch", header));
            }
            FileName::Run(_) => seed("run", &bytes),
            FileName::Change(number) => {
                seed("change", &bytes);
                seed(if number == 0 { "identity" } else { "tombstones" }, &bytes[48..bytes.len() - 8]);
            }
            FileName::Merged(_) => {
                seed("change", &bytes);
                seed("tombstones", &bytes[48..bytes.len() - 8]);
            }
            FileName::Temporary(_) => {}
        }
    }
    seeds
}
