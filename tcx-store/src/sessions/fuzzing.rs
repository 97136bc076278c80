//! The decoder of records over bytes that tests make up.

use super::record::{decode, encode, with_checksum};

/// Of a file as it is, and with its checksum made right.
pub(crate) fn session(bytes: &[u8]) {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').rev().skip(1).map(<[u8]>::len).sum();
    let text = String::from_utf8_lossy(&bytes[..lines]).into_owned();
    for bytes in [bytes.to_vec(), with_checksum(text)] {
        if let Some(session) = decode(&bytes) {
            assert_eq!(decode(&encode(&session)).as_ref(), Some(&session));
        }
    }
}
