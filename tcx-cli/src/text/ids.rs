//! Formats and parses ids: text as it is, integers in decimal, bytes in hex.

use std::io::{self, Read};
use std::path::Path;

use tcx_store::{KeyType, Keys};

use crate::failure::{Code, Failure, Result};

/// Reads a file with one id a line; `-` is standard input. Empty lines are skipped.
pub(crate) fn read(path: &Path) -> Result<Vec<String>> {
    Ok(lines(path)?.into_iter().filter(|line| !line.is_empty()).collect())
}

/// Like [`read`], for a file whose lines belong to the rows of other files.
///
/// # Errors
///
/// Returns an error if a line is empty.
pub(crate) fn read_each(path: &Path) -> Result<Vec<String>> {
    let ids = lines(path)?;
    match ids.iter().position(String::is_empty) {
        Some(at) => {
            let what = format!("{}: line {} is empty, but every row needs an id", path.display(), at + 1);
            Err(Failure::new(Code::Unfit, what))
        }
        None => Ok(ids),
    }
}

fn lines(path: &Path) -> Result<Vec<String>> {
    let text = if path == Path::new("-") {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    let text = text.map_err(|error| Failure::file("read", path, &error))?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// The bytes of an id.
///
/// # Errors
///
/// Returns an error if the id has another type.
pub(crate) fn parse(key_type: KeyType, id: &str) -> Result<Vec<u8>> {
    let bytes = match key_type {
        KeyType::Int => id.parse::<i64>().ok().map(|id| id.to_le_bytes().to_vec()),
        KeyType::Bytes => from_hex(id),
        _ => Some(id.as_bytes().to_vec()),
    };
    let expected = if key_type == KeyType::Bytes { "an even number of hex digits" } else { "an integer" };
    bytes.ok_or_else(|| {
        Failure::usage(format!("ids of this module are {key_type}: expected {expected}, found {id:?}"))
    })
}

/// The bytes of pairs of hex digits.
pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
    let pairs = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    Some(pairs.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// Two hex digits for each byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

/// The keys of these bytes.
pub(crate) fn keys<K: AsRef<[u8]>>(key_type: KeyType, ids: &[K], view: u32) -> Result<Keys> {
    let ids = ids.iter().map(AsRef::as_ref);
    Ok(match key_type {
        KeyType::Int => Keys::ints(ids.map(integer), view),
        KeyType::Bytes => Keys::bytes(ids, view)?,
        _ => {
            let texts: Result<Vec<&str>, _> = ids.map(std::str::from_utf8).collect();
            Keys::text(
                texts.map_err(|_| {
                    Failure::usage("ids of this module are text: expected UTF-8, found other bytes")
                })?,
                view,
            )?
        }
    })
}

/// The integer of a key's bytes.
pub(crate) fn integer(key: &[u8]) -> i64 {
    key.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes))
}

/// The text of an id.
pub(crate) fn show(key_type: KeyType, key: &[u8]) -> String {
    match key_type {
        KeyType::Int => integer(key).to_string(),
        KeyType::Bytes => hex(key),
        _ => String::from_utf8_lossy(key).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_back_as_they_are_written() {
        let ids = [(KeyType::Text, "a/b c"), (KeyType::Int, "-7"), (KeyType::Bytes, "00ff10")];
        for (key_type, id) in ids {
            assert_eq!(show(key_type, &parse(key_type, id).unwrap()), id);
        }
        for (key_type, id) in [(KeyType::Int, "cat"), (KeyType::Bytes, "abc"), (KeyType::Bytes, "xy")] {
            assert!(parse(key_type, id).unwrap_err().message.contains(id));
        }
    }
}
