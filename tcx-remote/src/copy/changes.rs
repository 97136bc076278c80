//! Whether two sides are copies of one module: the changes that both have are the same.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};

use super::files::change;

/// How many changes there are, if no number is missing among them.
///
/// # Errors
///
/// Returns an error for a gap: the folder is a part of a copy, and what its segments count on is not known.
pub(super) fn count(place: &str, mut numbers: Vec<u64>) -> io::Result<u64> {
    numbers.sort_unstable();
    match (0..).zip(&numbers).find(|(expected, number)| expected != *number) {
        None => Ok(numbers.len() as u64),
        Some((missing, _)) => Err(io::Error::new(
            ErrorKind::InvalidData,
            format!(
                "cannot copy {place}: {} is missing, so it is an incomplete copy; copy the rest",
                change(missing)
            ),
        )),
    }
}

/// Makes sure that two sides have the same changes, as far as both have them. `read` gets the bytes of a change of each side.
///
/// A change contains a nonce, and a copy gets each change after those before it. So two sides that have the same newest common change
/// have the same ones before.
///
/// # Errors
///
/// Returns an error if they differ.
pub(super) fn compare(
    module: &str,
    common: u64,
    mut read: impl FnMut(&str) -> io::Result<[Vec<u8>; 2]>,
) -> io::Result<()> {
    let Some(newest) = common.checked_sub(1) else { return Ok(()) };
    for number in [0, newest] {
        let [one, other] = read(&change(number))?;
        if one != other {
            return Err(diverged(module, number));
        }
    }
    Ok(())
}

/// Makes sure that the common changes have the same lengths: one that was repaired on one side says something else, and later ones may
/// have come since.
///
/// # Errors
///
/// Returns an error if they differ.
pub(super) fn compare_lengths(
    module: &str,
    common: u64,
    one: &BTreeMap<String, u64>,
    other: &BTreeMap<String, u64>,
) -> io::Result<()> {
    let is_other = |number: &u64| one.get(&change(*number)) != other.get(&change(*number));
    (0..common).find(is_other).map_or(Ok(()), |number| Err(diverged(module, number)))
}

pub(super) fn evicted_beside(module: &str, segment: &str) -> io::Error {
    let what = format!(
        "cannot copy `{module}`: rows were evicted or pruned on one side, and the other side has joined segments since they were copied; the \
         rows of {segment} would be lost; copy one side to another place and merge the rows with `tcx merge`"
    );
    io::Error::new(ErrorKind::AlreadyExists, what)
}

pub(super) fn unseen(module: &str, segment: &str) -> io::Error {
    let what = format!(
        "cannot copy `{module}`: rows were evicted or pruned here since it was copied, and the store has {segment}, which is not known here: its \
         rows could be lost; run `tcx pull` first (`tcx sync` does both)"
    );
    io::Error::new(ErrorKind::AlreadyExists, what)
}

pub(super) fn diverged(module: &str, number: u64) -> io::Error {
    let what = if number == 0 {
        format!(
            "cannot copy `{module}`: the other side has another cache of this name (their first changes differ); copy to another place, or \
             merge the rows with `tcx pack` and `tcx unpack`"
        )
    } else {
        format!(
            "cannot copy `{module}`: rows were invalidated or replaced on both sides since they were copied ({} differs); copy one side to \
             another place and merge the rows with `tcx merge`",
            change(number)
        )
    };
    io::Error::new(ErrorKind::AlreadyExists, what)
}
