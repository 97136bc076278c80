//! Decoding changes that no store has written.

use std::sync::Arc;

use super::new_tombstone::write_merged;
use super::table::{ChangeBytes, HashedKey, Named, TombstoneTable};
use super::*;
use crate::segment::fuzzing::OUTPUT;
use crate::sys::bytes::u64_at;
use crate::{Identity, KeyType, Spec};

const NUMBER: u64 = 7;
const NONCE: Random = Random([7; 16]);

/// A whole file, of whatever kind.
pub(crate) fn change(bytes: &[u8]) {
    let mut sealed = bytes.to_vec();
    if let Some((body, sum)) = sealed.split_last_chunk_mut::<8>() {
        *sum = checksum(body).to_le_bytes();
    }
    for bytes in [bytes, &sealed] {
        // The number behind magic, version and kind.
        let number = u64_at(bytes, 16).unwrap_or(0);
        if let Ok(change) = decode(number, bytes) {
            assert!(change.payload.len() + HEADER + 8 == bytes.len());
        }
        let _ = IdentityChange::decode(bytes);
        use_table(number, bytes.to_vec());
    }
}

/// The payload of change 0.
pub(crate) fn identity(payload: &[u8]) {
    let bytes = encode(0, KIND_IDENTITY, NONCE, payload);
    let Ok(change) = IdentityChange::decode(&bytes) else { return };
    assert_eq!(IdentityChange::decode(&change.encode()), Ok(change.clone()));
    let spec = Spec::new("m_v1", KeyType::Text, &OUTPUT, Identity::default(), Vec::new());
    let _ = change.difference(&spec.expect("the output can be stored"));
}

/// The payload of a tombstone, and of merged ones.
pub(crate) fn tombstones(payload: &[u8]) {
    for kind in KINDS.into_iter().filter(|kind| *kind != KIND_IDENTITY) {
        use_table(NUMBER, encode(NUMBER, kind, NONCE, payload));
    }
}

/// Probes the table for the names in it and others, and merges it with another.
fn use_table(number: u64, bytes: Vec<u8>) {
    let Ok(table) = TombstoneTable::open(number, ChangeBytes::Heap(bytes)) else { return };
    let view_of = |named| if let Named::View(view) = named { view } else { 7 };
    let own = table.iter().map(|entry| (entry.name, view_of(entry.named)));
    for (key, view) in own.chain([(&b"a"[..], 0), (b"sample 1", 0), (&[255; 300], 1)]) {
        let _ = table.newest_for(HashedKey::new(key, view));
    }
    let other = encode(1, KIND_TOMBSTONE, NONCE, &Doomed::Prefix((*b"sample").into()).payload(1));
    let other = TombstoneTable::open(1, ChangeBytes::Heap(other)).expect("what was just encoded can be read");
    let (mut merged, newest) = (Vec::new(), number.max(1));
    write_merged(&mut merged, newest, NONCE, &[Arc::new(table), Arc::new(other)])
        .expect("writing to memory cannot fail");
    TombstoneTable::open(newest, ChangeBytes::Heap(merged)).expect("what was merged can be read");
}
