//! Which ids of a list are in the cache.

use std::fmt;

use indicatif::HumanCount;
use tcx_store::{Keys, Lookup};

use crate::Result;
use crate::cache::mode::Rows;
use crate::ids::name::{SHOWN, id_name, name};

/// How many stored ids are shown where none of those asked for is stored.
const STORED: usize = 3;

/// Which ids of a list are in the cache. Made by [`Cached::coverage`](crate::Cached::coverage).
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let table = tcx::Cache::open(dir.path())?.table::<Vec<i64>>("coverage_table_v1")?;
/// table.put(&["a", "b"], &vec![1, 2])?;
/// let coverage = table.coverage(&["a", "x", "b", "y"])?;
/// assert_eq!((coverage.found(), coverage.missing()), (2, &[1, 3][..]));
/// assert_eq!((coverage.fraction(), coverage.is_complete()), (0.5, false));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// It prints as a few lines, with the first ten missing ids. If no id is stored, it shows how stored ids look:
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let table = tcx::Cache::open(dir.path())?.table::<Vec<i64>>("coverage_shown_v1")?;
/// table.put(&["train/a.png"], &vec![1])?;
/// assert_eq!(
///     table.coverage(&["a.png", "b.png"])?.to_string(),
///     r#"0 of 2 ids are stored
/// missing: "a.png", "b.png"
/// stored ids look like this: "train/a.png""#
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage {
    asked: usize,
    missing: Vec<usize>,
    /// The first of the missing ids.
    missing_ids: Vec<String>,
    /// Some of the stored ids, if all of those asked for are missing.
    stored_ids: Vec<String>,
}

impl Coverage {
    /// Looks the ids up, some after the other, in one view.
    pub(crate) fn of(rows: &Rows, view: u32, parts: impl Iterator<Item = Result<Keys>>) -> Result<Self> {
        let mut coverage =
            Self { asked: 0, missing: Vec::new(), missing_ids: Vec::new(), stored_ids: Vec::new() };
        let mut key_type = None;
        for keys in parts {
            let part = rows.peek(keys?)?;
            key_type = Some(part.keys().key_type());
            coverage.add(&part);
        }
        if let (Some(key_type), Some(store), 0) = (key_type, rows.store(), coverage.found()) {
            let keys = store.some_keys(view, STORED)?;
            coverage.stored_ids = keys.iter().map(|key| id_name(key_type, key)).collect();
        }
        Ok(coverage)
    }

    fn add(&mut self, part: &Lookup) {
        let before = self.asked;
        self.asked += part.len();
        for position in part.all_missing_positions() {
            if self.missing.len() < SHOWN {
                self.missing_ids.push(name(part.keys(), position));
            }
            self.missing.push(before + position);
        }
    }

    /// Whether every id is in the cache: nothing would be computed.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// The positions of the ids that are not, in order; with every position of a repeated id.
    pub fn missing(&self) -> &[usize] {
        &self.missing
    }

    /// How many ids are in the cache, repeated ones counted each time.
    pub fn found(&self) -> usize {
        self.asked - self.missing.len()
    }

    /// The part of the ids that is in the cache, from 0 to 1; 1 for an empty list.
    pub fn fraction(&self) -> f64 {
        if self.asked == 0 { 1. } else { self.found() as f64 / self.asked as f64 }
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |number: usize| HumanCount(number as u64);
        write!(f, "{} of {} ids are stored", count(self.found()), count(self.asked))?;
        if !self.missing_ids.is_empty() {
            write!(f, "\nmissing: {}", self.missing_ids.join(", "))?;
        }
        match self.missing.len() - self.missing_ids.len() {
            0 => {}
            more => write!(f, " and {} more", count(more))?,
        }
        if !self.stored_ids.is_empty() {
            write!(f, "\nstored ids look like this: {}", self.stored_ids.join(", "))?;
        }
        Ok(())
    }
}
