//! Reading all of a segment, and judging it.

use super::Segment;

/// What a segment is found to be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Sound,
    /// It does not hold what a writer writes, as the text says.
    Damaged(String),
    /// It could not be read, which says nothing of it.
    Unread,
}

impl Segment {
    /// Reads every byte, and every row as what it should be.
    pub(crate) fn judge_all(&self) -> Verdict {
        self.judged(Self::is_intact)
    }

    /// As [`judge_all`](Self::judge_all), but bytes that this process has verified are not read again.
    pub(crate) fn judge_rest(&self) -> Verdict {
        self.judged(Self::is_sound)
    }

    fn judged(&self, is_intact: fn(&Self) -> Option<bool>) -> Verdict {
        let failures = self.failures();
        match self.fault(is_intact) {
            None => Verdict::Sound,
            Some(_) if self.failures() > failures => Verdict::Unread,
            Some(what) => Verdict::Damaged(what),
        }
    }

    fn fault(&self, is_intact: fn(&Self) -> Option<bool>) -> Option<String> {
        if is_intact(self) != Some(true) {
            return Some("a checksum is wrong".to_owned());
        }
        if self.has_sound_keys() != Some(true) {
            return Some("a key cannot be read".to_owned());
        }
        if self.is_compressed() {
            let row = self.first_batch_in_doubt()?;
            return Some(format!("the record batch that begins with row {row} is malformed"));
        }
        let is_broken = |row: &usize| !self.is_row(*row);
        let broken = if self.has_rows_in_doubt() {
            (0..self.rows()).find(is_broken)
        } else {
            // Rows of equal length are anything: if the last is in the file, so are the others.
            self.rows().checked_sub(1).filter(is_broken)
        };
        Some(format!("row {} does not match the types of its outputs", broken?))
    }

    fn is_row(&self, row: usize) -> bool {
        if self.is_direct() { self.has_intact_leaves(row, None) } else { self.read_row(row).is_some() }
    }
}
