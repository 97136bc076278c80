//! Tombstones for what was computed before a time. They name no keys, so that they also kill rows of that age which come later: joined
//! ones, and those that wait on another machine.

use std::collections::BTreeMap;

use crate::sys::bytes::Cursor;

/// Kills every row with a smaller number that was computed before a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Age {
    /// The number of the change.
    pub(super) number: u64,
    /// In milliseconds since 1970.
    pub(super) before: u64,
}

impl Age {
    fn kills(self, number: u64, born: u64) -> bool {
        number < self.number && born < self.before
    }
}

/// Whether any of these kills a row with this number that was computed at this time.
pub(super) fn kill(ages: &[Age], number: u64, born: u64) -> bool {
    ages.iter().any(|age| age.kills(number, born))
}

/// Those that say something beside the others: a newer one with a later time says it as well. Ascending by their numbers.
pub(super) fn distinct(ages: impl IntoIterator<Item = Age>) -> Vec<Age> {
    let by_number: BTreeMap<u64, u64> = ages.into_iter().fold(BTreeMap::new(), |mut latest, age| {
        let before = latest.entry(age.number).or_default();
        *before = age.before.max(*before);
        latest
    });
    let (mut kept, mut latest) = (Vec::new(), 0);
    for (&number, &before) in by_number.iter().rev() {
        if before > latest {
            latest = before;
            kept.push(Age { number, before });
        }
    }
    kept.reverse();
    kept
}

pub(super) fn bytes(ages: &[Age]) -> Vec<u8> {
    let numbers = ages.iter().flat_map(|age| [age.number, age.before]);
    [ages.len() as u64].into_iter().chain(numbers).flat_map(u64::to_le_bytes).collect()
}

/// `None` if they are not all there.
pub(super) fn read(cursor: &mut Cursor<'_>) -> Option<Vec<Age>> {
    (0..cursor.u64()?).map(|_| Some(Age { number: cursor.u64()?, before: cursor.u64()? })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn age(number: u64, before: u64) -> Age {
        Age { number, before }
    }

    #[test]
    fn older_rows_with_a_smaller_number_are_killed_and_no_others() {
        let ages = [age(3, 100), age(5, 50)];
        for (number, born, is_dead) in [
            (2, 99, true),
            (2, 100, false),
            (3, 99, false),
            (3, 49, true),
            (4, 49, true),
            (4, 50, false),
            (5, 0, false),
        ] {
            assert_eq!(kill(&ages, number, born), is_dead, "number {number}, born at {born}");
        }
    }

    #[test]
    fn what_a_newer_one_with_a_later_time_says_as_well_is_left_out() {
        assert_eq!(distinct([age(3, 100), age(1, 100), age(2, 50), age(5, 50)]), [age(3, 100), age(5, 50)]);
        assert_eq!(distinct([age(2, 5), age(2, 7)]), [age(2, 7)]);
        assert_eq!(distinct([age(2, 0)]), []);
    }

    #[test]
    fn they_are_read_back_and_none_that_is_cut_off() {
        let ages = [age(3, 100), age(5, 50)];
        let written = bytes(&ages);
        let parse = |bytes: &[u8]| read(&mut Cursor::new(bytes));
        assert_eq!(parse(&written), Some(ages.to_vec()));
        for cut in 0..written.len() {
            assert_eq!(parse(&written[..cut]), None);
        }
        assert_eq!(parse(&u64::MAX.to_le_bytes()), None);
    }
}
