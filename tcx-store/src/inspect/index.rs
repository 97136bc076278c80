//! How small the index can be.

use std::collections::HashSet;

use crate::inspect::{Inspection, SegmentFacts};
use crate::live::listing::Listing;
use crate::live::run_set::RunSet;
use crate::storage::name::{FileName, SegmentName};

impl Inspection {
    /// The bytes that the index takes, about, once only these segments are left and the index was
    /// [trimmed](crate::Store::trim_index).
    ///
    /// ```
    /// # use tcx_store::{Column, ColumnType, DType, Identity, Inspection, KeyType, Keys, Options, Spec, Store};
    /// # let dir = tempfile::tempdir()?;
    /// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
    /// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
    /// # let store = Store::open(dir.path(), spec, &Options::default())?;
    /// # let mut rows = store.lookup(Keys::ints(0..1000, 0))?;
    /// # let all: Vec<usize> = (0..1000).collect();
    /// # store.insert(&mut rows, &all, vec![Column::dense(&vec![7; 1000])])?;
    /// # store.flush()?;
    /// let module = Inspection::open(&dir.path().join("m_v1"))?;
    /// assert_eq!(module.trimmed_index_bytes(|_| true), module.other_files().run_bytes);
    /// assert_eq!(module.trimmed_index_bytes(|_| false), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn trimmed_index_bytes(&self, stays: impl Fn(&SegmentFacts) -> bool) -> u64 {
        let all = self.other_files().run_bytes;
        let Ok(listing) = Listing::read(&*self.storage) else { return all };
        let left =
            self.segments().filter(|facts| stays(facts)).filter_map(|facts| FileName::parse(&facts.name));
        let left: HashSet<SegmentName> = left
            .filter_map(|name| if let FileName::Segment(name) = name { Some(name) } else { None })
            .collect();
        let is_gone = |name| !left.contains(&name);
        let mut runs = RunSet::new(self.storage.clone());
        runs.open_listed(&listing.runs);
        // What cannot be used is left alone.
        let unused = all.saturating_sub(runs.bytes() as u64);
        runs.prune(is_gone);
        let trimmed = match runs.stale(&is_gone) {
            Some(stale) => runs.bytes() - stale.frees(),
            None => runs.bytes(),
        };
        unused + trimmed as u64
    }
}
