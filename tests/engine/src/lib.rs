//! What the engine's tests share: a module whose rows are derivable from their ids, so that every process can
//! check every row it finds.

#![expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test that cannot go on panics")]

#[cfg(unix)]
pub mod child;
pub mod churn;
pub mod crowd;
pub mod damage;
pub mod endure;
mod findings;
pub mod forge;
pub mod growth;
pub mod hostile;
pub mod kill;
pub mod moved;
pub mod worker;
mod workers;

pub use findings::Findings;
pub use workers::{Ended, Worker, Workers};

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tcx_store::{
    Column, ColumnType, DType, DYNAMIC_DIM, Field, Identity, KeyType, Keys, Lookup, Options, Spec, Store,
};

/// A tensor, a number and a text; bytes, a number that not every sample has, and a tensor that differs in size.
pub const OUTPUT: ColumnType = ColumnType::Struct(&[
    Field { name: "vector", column: ColumnType::Dense { dtype: DType::F32, shape: &[4, 8] } },
    Field { name: "score", column: ColumnType::Dense { dtype: DType::I64, shape: &[] } },
    Field { name: "caption", column: ColumnType::Text },
    Field { name: "image", column: ColumnType::Bytes },
    Field {
        name: "maybe",
        column: ColumnType::Optional(&ColumnType::Dense { dtype: DType::I64, shape: &[] }),
    },
    Field { name: "tokens", column: ColumnType::Ragged { dtype: DType::I16, shape: &[DYNAMIC_DIM, 2] } },
]);

/// The module; `size` stands for its configuration.
pub fn spec(size: &str) -> Spec {
    let identity: Identity = [("size".to_owned(), size.to_owned())].into_iter().collect();
    Spec::new("m_v1", KeyType::Text, &OUTPUT, identity, Vec::new()).unwrap()
}

/// Rows are sealed only by `flush`, and looked for at once.
pub fn options() -> Options {
    Options { flush_interval: Duration::from_hours(1), refresh_every: Duration::ZERO, ..Options::default() }
}

/// The store of the module in the cache directory `dir`.
pub fn open(dir: &Path) -> Arc<Store> {
    Store::open(dir, spec("224"), &options()).unwrap()
}

/// What the module computes for an id.
pub fn row(id: &str) -> (Vec<u8>, i64, String) {
    let seed = id.bytes().fold(7_u32, |seed, byte| seed.wrapping_mul(31).wrapping_add(u32::from(byte)));
    let vector = (0..32).flat_map(|i| ((seed.wrapping_add(i)) as f32).to_le_bytes()).collect();
    (vector, i64::from(seed) - 5, format!("caption of {id}").repeat(1 + seed as usize % 3))
}

/// The rest of what it computes: bytes, a number that may be absent, and elements.
pub fn varying(id: &str) -> (Vec<u8>, Option<i64>, Vec<u8>) {
    let (_, score, caption) = row(id);
    let some = score as usize;
    let image = caption.into_bytes().into_iter().rev().take(some % 7).collect();
    (image, (!some.is_multiple_of(3)).then_some(score * 2), vec![some as u8; some % 5 * 4])
}

/// Rows that differ in length.
fn joined<'a>(rows: impl Iterator<Item = &'a Vec<u8>>) -> Column {
    let (mut values, mut ends) = (Vec::new(), Vec::new());
    for row in rows {
        values.extend_from_slice(row);
        ends.push(values.len());
    }
    Column::varying(values, ends)
}

/// What the module computes for a batch.
pub fn columns(ids: &[&str]) -> Vec<Column> {
    let rows: Vec<_> = ids.iter().map(|id| row(id)).collect();
    let vectors: Vec<u8> = rows.iter().flat_map(|row| row.0.clone()).collect();
    let scores: Vec<u8> = rows.iter().flat_map(|row| row.1.to_le_bytes()).collect();
    let varying: Vec<_> = ids.iter().map(|id| varying(id)).collect();
    let maybe: Vec<u8> = varying.iter().flat_map(|row| row.1.unwrap_or(0).to_le_bytes()).collect();
    vec![
        Column::dense(&vectors),
        Column::dense(&scores),
        Column::text(rows.iter().map(|row| &row.2)),
        joined(varying.iter().map(|row| &row.0)),
        Column::dense(&maybe).optional(varying.iter().map(|row| row.1.is_some())),
        joined(varying.iter().map(|row| &row.2)),
    ]
}

/// Finds what is there of these ids.
pub fn lookup(store: &Store, ids: &[&str]) -> Lookup {
    store.lookup(Keys::text(ids, 0).unwrap()).unwrap()
}

/// Looks up, computes what is missing, and checks every row; tells how many were missing.
pub fn get_or_compute(store: &Store, ids: &[&str]) -> usize {
    let mut rows = lookup(store, ids);
    let missing = rows.distinct_missing_positions();
    let missing_ids: Vec<&str> = missing.iter().map(|&position| ids[position]).collect();
    store.insert(&mut rows, &missing, columns(&missing_ids)).unwrap();
    check(&rows, ids);
    missing.len()
}

/// Every row is there and the one of its id.
pub fn check(rows: &Lookup, ids: &[&str]) {
    judge(rows, ids).assert_none();
    let mut vectors = vec![std::mem::MaybeUninit::new(0); ids.len() * 128];
    rows.copy_dense(0, &mut vectors);
}

/// Rows that are not there, and rows that are not those of their ids.
pub fn judge(rows: &Lookup, ids: &[&str]) -> Findings {
    let mut findings = Findings::default();
    let mut missing = rows.all_missing_positions().peekable();
    for (position, id) in ids.iter().enumerate() {
        if missing.next_if_eq(&position).is_some() {
            findings.lost.push((*id).to_owned());
            continue;
        }
        let (vector, score, caption) = row(id);
        let (image, maybe, tokens) = varying(id);
        let same = rows.bytes(0, position) == vector
            && rows.bytes(1, position) == score.to_le_bytes()
            && rows.text(2, position).is_ok_and(|found| found == caption)
            && rows.bytes(3, position) == image
            && rows.is_present(4, position) == maybe.is_some()
            && rows.bytes(4, position) == maybe.unwrap_or(0).to_le_bytes()
            && rows.bytes(5, position) == tokens;
        if !same {
            findings.wrong.push(format!("{id} has the row of another: {:?}", rows.bytes(0, position)));
        }
    }
    findings
}

/// The files of the module whose name begins so.
pub fn files(dir: &Path, prefix: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir.join("m_v1"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file() && path.file_name().unwrap().to_str().unwrap().starts_with(prefix))
        .collect();
    files.sort();
    files
}

/// Random numbers that are the same in every run of a seed, which is not 0: a failure can be repeated.
#[derive(Clone, Debug)]
pub struct Dice(pub u64);

impl Dice {
    /// A number below `limit`.
    pub fn roll(&mut self, limit: usize) -> usize {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % limit as u64) as usize
    }
}

/// The ids of the next batch of a soak: some of many, some of few, some twice.
pub fn soak_batch(dice: &mut Dice) -> Vec<String> {
    let rows = dice.roll(100);
    (0..rows)
        .map(|_| if dice.roll(4) == 0 { dice.roll(500) } else { dice.roll(300_000) })
        .map(|i| format!("s{i}"))
        .collect()
}
