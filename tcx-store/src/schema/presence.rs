//! Which rows of a column have a value: a bit a row, as Arrow keeps it on disk.

/// A bit for each row, the lowest bit of a byte first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Presence {
    bits: Vec<u8>,
    rows: usize,
    absent: usize,
}

impl Presence {
    pub(crate) fn push(&mut self, present: bool) {
        if self.rows.is_multiple_of(8) {
            self.bits.push(0);
        }
        if let Some(last) = self.bits.last_mut() {
            *last |= u8::from(present) << (self.rows % 8);
        }
        self.rows += 1;
        self.absent += usize::from(!present);
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// How many rows have no value.
    pub(crate) fn absent(&self) -> usize {
        self.absent
    }

    pub(crate) fn bits(&self) -> &[u8] {
        &self.bits
    }

    /// # Panics
    ///
    /// If there is no such row.
    pub(crate) fn is_present(&self, row: usize) -> bool {
        is_set(self.bits[row / 8], row)
    }
}

/// Whether the byte of a row says that it has a value.
pub(crate) fn is_set(byte: u8, row: usize) -> bool {
    byte >> (row % 8) & 1 == 1
}

impl FromIterator<bool> for Presence {
    fn from_iter<I: IntoIterator<Item = bool>>(rows: I) -> Self {
        let mut presence = Self::default();
        rows.into_iter().for_each(|present| presence.push(present));
        presence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_bit() {
        for rows in 0..40 {
            let pattern: Vec<bool> = (0..rows).map(|row| row % 3 != 1).collect();
            let presence: Presence = pattern.iter().copied().collect();
            assert_eq!(presence.rows(), rows);
            assert_eq!(presence.bits().len(), rows.div_ceil(8));
            assert_eq!(presence.absent(), pattern.iter().filter(|present| !**present).count());
            assert!((0..rows).all(|row| presence.is_present(row) == pattern[row]));
        }
    }
}
