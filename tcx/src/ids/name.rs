//! Ids in messages.

use tcx_store::{KeyType, Keys};

/// How many ids a message shows: it has to fit on a screen.
pub(crate) const SHOWN: usize = 10;

/// An id, for a message.
pub(crate) fn name(keys: &Keys, position: usize) -> String {
    id_name(keys.key_type(), keys.key(position))
}

/// An id as text.
pub(crate) fn text(keys: &Keys, position: usize) -> String {
    match keys.key_type() {
        KeyType::Text => String::from_utf8_lossy(keys.key(position)).into_owned(),
        _ => name(keys, position),
    }
}

/// The id with these bytes, for a message.
pub(crate) fn id_name(key_type: KeyType, key: &[u8]) -> String {
    match key_type {
        KeyType::Text => format!("{:?}", String::from_utf8_lossy(key)),
        KeyType::Int => {
            <[u8; 8]>::try_from(key).map_or_else(|_| String::new(), |id| i64::from_le_bytes(id).to_string())
        }
        _ => format!("{key:02x?}"),
    }
}
