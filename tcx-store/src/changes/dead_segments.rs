//! Tombstones for segments by their names. A segment is removed with its rows when these are evicted; where its file comes back, from a copy of
//! the folder, the rows do not.

use crate::sys::bytes::{Cursor, Random};

/// A segment whose rows are dead, wherever it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeadSegment {
    /// The random bits of its name.
    pub(super) name: Random,
    /// The first change that names it.
    pub(super) number: u64,
}

/// Each once, ascending by their names.
pub(super) fn distinct(dead: impl IntoIterator<Item = DeadSegment>) -> Vec<DeadSegment> {
    let mut dead: Vec<DeadSegment> = dead.into_iter().collect();
    // Most come in lists that are in order: a stable sort merges these.
    dead.sort_by_key(|own| (own.name, own.number));
    dead.dedup_by_key(|own| own.name);
    dead
}

/// The first change that names this segment, if any does.
pub(super) fn since(dead: &[DeadSegment], name: Random) -> Option<u64> {
    dead.binary_search_by_key(&name, |own| own.name).ok().map(|at| dead[at].number)
}

pub(super) fn bytes(dead: &[DeadSegment]) -> Vec<u8> {
    let mut out = (dead.len() as u64).to_le_bytes().to_vec();
    for DeadSegment { name, number } in dead {
        out.extend(name.0);
        out.extend(number.to_le_bytes());
    }
    out
}

/// `None` if they are not all there, or not in order: one would not be found.
pub(super) fn read(cursor: &mut Cursor<'_>) -> Option<Vec<DeadSegment>> {
    let one = |cursor: &mut Cursor<'_>| {
        let (name, number) = (cursor.random()?, cursor.u64()?);
        Some(DeadSegment { name, number })
    };
    let mut dead = Vec::new();
    for _ in 0..cursor.u64()? {
        dead.push(one(cursor)?);
    }
    dead.is_sorted_by(|one, next| one.name < next.name).then_some(dead)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(name: u8, number: u64) -> DeadSegment {
        DeadSegment { name: Random([name; 16]), number }
    }

    #[test]
    fn each_name_is_kept_once_with_its_first_change_and_is_found() {
        let kept = distinct([dead(7, 4), dead(2, 9), dead(7, 3), dead(7, 5)]);
        assert_eq!(kept, [dead(2, 9), dead(7, 3)]);
        let found = [2, 7, 3].map(|name| since(&kept, Random([name; 16])));
        assert_eq!(found, [Some(9), Some(3), None]);
    }

    #[test]
    fn they_are_read_back_and_none_that_is_cut_off_or_out_of_order() {
        let parse = |bytes: &[u8]| {
            let mut cursor = Cursor::new(bytes);
            read(&mut cursor).filter(|_| cursor.is_at_end())
        };
        let written = bytes(&[dead(1, 3), dead(2, 1)]);
        assert_eq!(parse(&written), Some(vec![dead(1, 3), dead(2, 1)]));
        for cut in 0..written.len() {
            assert_eq!(parse(&written[..cut]), None);
        }
        for disordered in [[dead(2, 1), dead(1, 1)], [dead(2, 1), dead(2, 3)]] {
            assert_eq!(parse(&bytes(&disordered)), None);
        }
        assert_eq!(parse(&u64::MAX.to_le_bytes()), None);
    }
}
