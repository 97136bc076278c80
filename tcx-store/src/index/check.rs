//! Comparing an index run with the keys it leads to.

use std::sync::Arc;

use super::{MAGIC, Run, UNSEEDED_MAGIC, known_bits};
use crate::schema::key::KeyHash;
use crate::storage::name::SegmentName;

impl Run {
    /// Whether these bytes begin as an index run does that this version of tcx does not know.
    pub(crate) fn is_of_another_version(bytes: &[u8]) -> bool {
        let (name, version) = MAGIC.split_at(6);
        let found = bytes.get(6..8).filter(|found| found.iter().all(u8::is_ascii_digit));
        bytes.starts_with(name)
            && found.is_some_and(|found| found != version && found != &UNSEEDED_MAGIC[6..])
    }

    /// Where this run disagrees with the keys of its segments, whose hashes `hashes` knows: each row is in it once, under
    /// the hash of its key. A segment that is not known is passed over.
    pub(crate) fn disagreement(
        &self,
        mut hashes: impl FnMut(SegmentName) -> Option<Arc<[KeyHash]>>,
    ) -> Option<String> {
        let known: Vec<_> = self.segments().iter().map(|name| hashes(*name)).collect();
        let mut met: Vec<Vec<bool>> =
            known.iter().map(|own| vec![false; own.as_ref().map_or(0, |own| own.len())]).collect();
        for entry in self.table().entries() {
            let number = usize::from(entry.segment());
            let Some(own) = known.get(number) else {
                return Some("an entry points to no segment".to_owned());
            };
            let Some(own) = own else { continue };
            let (row, name) = (entry.row as usize, self.segments()[number]);
            if own.get(row).is_none_or(|hash| known_bits(*hash) != known_bits(entry.mark)) {
                return Some(format!("an entry points to row {row} of {name}, which has another key"));
            }
            if std::mem::replace(&mut met[number][row], true) {
                return Some(format!("two entries point to row {row} of {name}"));
            }
        }
        let mut segments = met.iter().zip(self.segments());
        let (met, name) = segments.find(|(met, _)| met.contains(&false))?;
        let row = met.iter().position(|met| !met).unwrap_or(0);
        Some(format!("no entry points to row {row} of {name}"))
    }
}
