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
        let failures = self.failures();
        match self.fault() {
            None => Verdict::Sound,
            Some(_) if self.failures() > failures => Verdict::Unread,
            Some(what) => Verdict::Damaged(what),
        }
    }

    fn fault(&self) -> Option<String> {
        if self.is_intact() != Some(true) {
            return Some("a checksum is wrong".to_owned());
        }
        if self.has_sound_keys() != Some(true) {
            return Some("a key cannot be read".to_owned());
        }
        if self.is_compressed() {
            let row = self.first_batch_in_doubt()?;
            return Some(format!("the record batch that begins with row {row} is not what a writer makes"));
        }
        let broken = (0..self.rows()).find(|&row| !self.is_row(row))?;
        Some(format!("row {broken} is none of its outputs' types"))
    }

    fn is_row(&self, row: usize) -> bool {
        if self.is_direct() { self.has_intact_leaves(row, None) } else { self.read_row(row).is_some() }
    }
}
