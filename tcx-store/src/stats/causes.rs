//! Misses by their cause.

/// Misses by their cause: what the index still knew of them.
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// # let store = Store::open(dir.path(), spec, &Options::default())?;
/// let mut rows = store.lookup(Keys::ints([1, 2], 0))?;
/// store.insert(&mut rows, &[0, 1], vec![Column::dense(&[10, 20])])?;
/// store.flush()?;
/// store.invalidate(&Keys::ints([2], 0))?;
/// let before = store.stats().miss_causes;
/// store.lookup(Keys::ints([1, 2, 3], 0))?;
/// let causes = store.stats().miss_causes;
/// assert_eq!(causes.invalidated - before.invalidated, 1);
/// assert_eq!(causes.absent - before.absent, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissCauses {
    /// They were not there; or what was there has been removed since, or has never left the write buffer.
    pub absent: u64,
    /// They were invalidated.
    pub invalidated: u64,
    /// They were older than the time to live.
    pub expired: u64,
    /// Their bytes are not what was written.
    pub damaged: u64,
    /// Their segment is gone, cannot be opened or read, is of an unknown codec, or counts on a change that is not known.
    pub unreadable: u64,
    /// They were stored, and a [`RecomputeSession`](crate::RecomputeSession) computes them again.
    pub recomputed: u64,
    /// They were found, and [rejected](crate::Store::reject) by the caller.
    pub rejected: u64,
    /// They were there under another [stamp](crate::StampType): their source has changed.
    pub outdated: u64,
}

impl MissCauses {
    pub(crate) const COUNT: usize = 8;

    pub(crate) fn of(counts: [u64; Self::COUNT]) -> Self {
        let [absent, invalidated, expired, damaged, unreadable, recomputed, rejected, outdated] = counts;
        Self { absent, invalidated, expired, damaged, unreadable, recomputed, rejected, outdated }
    }

    /// Each with its name.
    #[cfg(feature = "metrics")]
    pub(crate) fn named(&self) -> [(&'static str, u64); Self::COUNT] {
        [
            ("absent", self.absent),
            ("invalidated", self.invalidated),
            ("expired", self.expired),
            ("damaged", self.damaged),
            ("unreadable", self.unreadable),
            ("recomputed", self.recomputed),
            ("rejected", self.rejected),
            ("outdated", self.outdated),
        ]
    }

    pub(crate) fn all(&self) -> u64 {
        let Self { absent, invalidated, expired, damaged, unreadable, recomputed, rejected, outdated } = self;
        let causes = [absent, invalidated, expired, damaged, unreadable, recomputed, rejected, outdated];
        causes.into_iter().fold(0, |all, cause| all.saturating_add(*cause))
    }
}

/// Why a row was missed; the place of its count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Cause {
    #[default]
    Absent,
    Invalidated,
    Expired,
    Damaged,
    Unreadable,
    Recomputed,
    Rejected,
    Outdated,
}
