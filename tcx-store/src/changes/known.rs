//! Which changes this process has read, and what they say of the rows.

use std::collections::BTreeSet;

/// The changes read so far. What is known is never forgotten.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownChanges {
    /// The number below which every change has been read.
    next: u64,
    /// Rows of a segment with a smaller base are dead: the newest change that this version cannot read.
    floor: u64,
}

impl KnownChanges {
    /// The newest change known, with all before it; `None` as long as there is no identity.
    pub(crate) fn newest(&self) -> Option<u64> {
        self.next.checked_sub(1)
    }

    /// Whether the rows of a segment with this base may be served: its changes are read, and none kills it.
    pub(crate) fn serves(&self, base: u64) -> bool {
        self.newest().is_some_and(|newest| base <= newest) && base >= self.floor
    }

    /// Takes note of change 0.
    pub(crate) fn learn_identity(&mut self) {
        self.next = self.next.max(1);
    }

    /// Takes note of the listed numbers. This version knows no change but the identity, so each of them counts
    /// as a tombstone for everything with a smaller base: rather a miss than a row that another version killed.
    ///
    /// Numbers behind a gap stay unknown until the gap is closed; their segments are not served meanwhile.
    pub(crate) fn learn_listed(&mut self, numbers: &BTreeSet<u64>) {
        while self.next > 0 && numbers.contains(&self.next) {
            self.floor = self.next;
            self.next += 1;
        }
    }

    /// Rows of a base below this are dead.
    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_a_newer_version_kills_what_came_before_it() {
        let mut known = KnownChanges::default();
        assert!(!known.serves(0));
        known.learn_listed(&BTreeSet::from([1]));
        assert_eq!(known.newest(), None, "nothing is known before the identity");
        known.learn_identity();
        assert!(known.serves(0));
        known.learn_listed(&BTreeSet::from([0, 1, 2, 4]));
        assert_eq!(known.newest(), Some(2));
        assert!(!known.serves(1));
        assert!(known.serves(2));
        assert!(!known.serves(4), "a change behind a gap is not known yet");
        known.learn_listed(&BTreeSet::new());
        assert_eq!(known.newest(), Some(2), "what is known is not forgotten");
    }
}
