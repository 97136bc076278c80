//! A cache with files of every kind, which are damaged one at a time: damage costs misses and a count, never a wrong row,
//! and never brings back what an invalidation has killed.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use tcx_store::{Compression, ErrorKind, Keys, Options, Store};

use crate::churn::{block_rows, values};
use crate::{Dice, Findings, files, options, spec};

/// What damage has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Every row was found.
    None,
    /// So many rows of those looked for were not.
    Misses(usize),
    /// The cache was closed, with an error that names the file.
    Closed,
}

/// What is done to a file.
#[derive(Clone, Copy, Debug)]
pub enum Damage {
    /// A bit is another.
    Flip {
        /// The byte.
        at: usize,
        /// The bit of it.
        bit: u8,
    },
    /// The file ends early.
    Cut {
        /// So many bytes are left.
        len: usize,
    },
}

impl Damage {
    /// Damage anywhere in a file of so many bytes.
    pub fn anywhere(dice: &mut Dice, len: usize) -> Self {
        if dice.roll(8) == 0 { Self::Cut { len: dice.roll(len) } } else { Self::flip_anywhere(dice, len) }
    }

    /// A flipped bit anywhere in a file of so many bytes.
    pub fn flip_anywhere(dice: &mut Dice, len: usize) -> Self {
        // Headers and tails are small compared with the rows, but more important.
        let at = match dice.roll(4) {
            0 => dice.roll(len.min(64)),
            1 => len - 1 - dice.roll(len.min(2048)),
            _ => dice.roll(len),
        };
        Self::Flip { at, bit: dice.roll(8) as u8 }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flip { at, bit } => write!(f, "bit {bit} of byte {at} flipped"),
            Self::Cut { len } => write!(f, "cut to {len} bytes"),
        }
    }
}

/// The cache.
#[derive(Debug)]
pub struct Campaign {
    dir: tempfile::TempDir,
    /// Rows and the values they have; dead ones have none.
    rows: Vec<(String, Option<i64>)>,
    files: Vec<(PathBuf, Vec<u8>)>,
    /// So many rows are looked for after each damage.
    sample: usize,
}

/// A store that joins only when it is told to.
struct Maker {
    store: std::sync::Arc<Store>,
    rows: Vec<(String, Option<i64>)>,
}

impl Maker {
    fn add(&mut self, prefix: &str, rows: usize, value: i64) {
        let ids: Vec<String> = (0..rows).map(|row| format!("{prefix}{row}")).collect();
        let mut lookup = self.store.lookup(Keys::text(&ids, 0).unwrap()).unwrap();
        let missing = lookup.distinct_missing_positions();
        let added: Vec<String> = missing.iter().map(|&position| ids[position].clone()).collect();
        self.store.insert(&mut lookup, &missing, block_rows(&added, value)).unwrap();
        self.store.flush().unwrap();
        let again: HashSet<&String> = added.iter().collect();
        self.rows.retain(|(id, _)| !again.contains(id));
        self.rows.extend(added.into_iter().map(|id| (id, Some(value))));
    }

    fn invalidate(&mut self, is_doomed: impl Fn(&str) -> bool) {
        let doomed: Vec<&String> = self.rows.iter().map(|(id, _)| id).filter(|id| is_doomed(id)).collect();
        self.store.invalidate(&Keys::text(doomed, 0).unwrap()).unwrap();
        self.kill(is_doomed);
    }

    fn invalidate_prefix(&mut self, prefix: &str) {
        self.store.invalidate_prefix(prefix.as_bytes()).unwrap();
        self.kill(|id| id.starts_with(prefix));
    }

    fn kill(&mut self, is_doomed: impl Fn(&str) -> bool) {
        self.rows.iter_mut().filter(|(id, _)| is_doomed(id)).for_each(|(_, value)| *value = None);
    }
}

fn wait_for_merged_changes(dir: &Path) {
    let start = Instant::now();
    while files(dir, "merged-").is_empty() {
        assert!(start.elapsed() < Duration::from_mins(1), "no changes were merged within a minute");
        thread::sleep(Duration::from_millis(5));
    }
}

impl Campaign {
    /// Segments that were flushed, joined with what they replace still there, and joined with it gone; tombstones by key and
    /// by prefix, some of them merged; runs. `rows` to a part, of which there are six; 120 at least; `sample` rows are looked for.
    pub fn new(rows: usize, sample: usize, compression: Compression) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { gc_grace: Duration::from_hours(1), compression, ..options() };
        let store = Store::open(dir.path(), spec("224"), &options).unwrap();
        let mut maker = Maker { store, rows: Vec::new() };
        maker.add("early/", rows, 1);
        maker.add("plain/", rows, 1);
        maker.invalidate_prefix("early/1");
        maker.store.compact().unwrap();
        maker.store.collect(Duration::ZERO).unwrap();
        maker.add("second/", rows, 1);
        maker.add("third/", rows, 1);
        // Enough changes to be merged when the next rows are sealed.
        for number in 0..20 {
            maker.invalidate(|id| id == format!("plain/{}", 6 * number + 1));
        }
        maker.add("plain/", rows, 2);
        // Merging runs in the background; later invalidations stay in single changes.
        wait_for_merged_changes(dir.path());
        maker.store.compact().unwrap();
        maker.add("late/", rows, 1);
        maker.invalidate(|id| id.ends_with('3'));
        maker.invalidate_prefix("third/2");
        maker.add("second/", rows, 3);
        maker.invalidate_prefix("second/4");
        let Maker { store, rows } = maker;
        drop(store);
        let read = |path: PathBuf| {
            let bytes = fs::read(&path).unwrap();
            // Sealed files are read-only.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
            (path, bytes)
        };
        let files = files(dir.path(), "").into_iter().map(read).collect();
        Self { dir, rows, files, sample }
    }

    /// How many files there are whose name begins so.
    pub fn count(&self, prefix: &str) -> usize {
        (0..self.files.len()).filter(|&file| self.name(file).starts_with(prefix)).count()
    }

    /// How many files there are.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// The bytes of a file.
    pub fn len(&self, file: usize) -> usize {
        self.files[file].1.len()
    }

    /// Whether there are no files.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The name of a file.
    pub fn name(&self, file: usize) -> &str {
        self.files[file].0.file_name().and_then(|name| name.to_str()).unwrap()
    }

    /// Damages a file, looks for rows, and puts the file back.
    pub fn damage(&self, file: usize, damage: Damage, dice: &mut Dice) -> (Effect, Findings) {
        let (path, bytes) = &self.files[file];
        let open = fs::File::options().write(true).open(path).unwrap();
        match damage {
            Damage::Flip { at, bit } => open.write_all_at(&[bytes[at] ^ 1 << bit], at as u64).unwrap(),
            Damage::Cut { len } => open.set_len(len as u64).unwrap(),
        }
        let (effect, mut findings) = self.look(self.name(file), dice);
        for what in findings.wrong.iter_mut().chain(&mut findings.lost) {
            *what = format!("{}, {damage}: {what}", self.name(file));
        }
        self.restore(file, damage);
        (effect, findings)
    }

    /// Looks for rows; without damage every one has to be there.
    pub fn look_undamaged(&self, dice: &mut Dice) -> Findings {
        let (effect, mut findings) = self.look("none", dice);
        if effect != Effect::None {
            findings.lost.push(format!("{effect:?} without damage"));
        }
        findings
    }

    fn look(&self, damaged: &str, dice: &mut Dice) -> (Effect, Findings) {
        let options = Options { read_only: dice.roll(2) == 0, ..options() };
        let store = match Store::open(self.dir.path(), spec("224"), &options) {
            Ok(store) => store,
            Err(error) => {
                let names_it = error.kind() == ErrorKind::Corrupt && error.to_string().contains(damaged);
                let is_identity = damaged.ends_with("change-00000000000000000000");
                let wrong = (!names_it || !is_identity).then(|| format!("closed: {error}"));
                return (Effect::Closed, Findings { lost: Vec::new(), wrong: wrong.into_iter().collect() });
            }
        };
        let sample: Vec<&(String, Option<i64>)> =
            (0..self.sample).map(|_| &self.rows[dice.roll(self.rows.len())]).collect();
        let ids: Vec<String> = sample.iter().map(|(id, _)| id.clone()).collect();
        let (mut findings, mut misses) = (Findings::default(), 0);
        for (found, (id, value)) in values(&store, &ids).into_iter().zip(sample) {
            match (found, value) {
                (None, None) => {}
                (None, Some(_)) => misses += 1,
                (found, value) if found == *value => {}
                _ => findings.wrong.push(format!("{id}: {found:?} is served, {value:?} is right")),
            }
        }
        let is_counted = store.stats().damaged_segments > 0;
        // A change that cannot be verified counts as a tombstone for everything before it, with a warning.
        if misses > 0 && !is_counted && !damaged.starts_with("change-") {
            findings.wrong.push(format!("{misses} misses without a count"));
        }
        (if misses > 0 { Effect::Misses(misses) } else { Effect::None }, findings)
    }

    fn restore(&self, file: usize, damage: Damage) {
        let (path, bytes) = &self.files[file];
        match (damage, fs::File::options().write(true).open(path)) {
            (Damage::Flip { at, .. }, Ok(open)) => open.write_all_at(&bytes[at..=at], at as u64).unwrap(),
            (Damage::Cut { len }, Ok(open)) => open.write_all_at(&bytes[len..], len as u64).unwrap(),
            // The process that finds a damaged run removes it.
            (_, Err(_)) => fs::write(path, bytes).unwrap(),
        }
        // Runs that were rebuilt.
        for other in files(self.dir.path(), "") {
            if !self.files.iter().any(|(own, _)| *own == other) {
                fs::remove_file(other).unwrap();
            }
        }
    }
}

/// Replaces a sealed file, which is read-only, or may have been removed by who met its damage.
pub fn overwrite(path: &Path, bytes: &[u8]) {
    if path.exists() {
        fs::remove_file(path).unwrap();
    }
    fs::write(path, bytes).unwrap();
}
