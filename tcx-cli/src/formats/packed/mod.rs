//! A packed module: its live rows in one file, the same bytes for the same rows. `docs/format.md` describes it.

mod raw;
mod reader;
mod writer;

use std::cmp::Ordering;

use arrow::datatypes::Schema;
use tcx_store::{KeyType, Spec};

use crate::text::ids;

pub(crate) use reader::{Packed, PackedBatch};
pub(crate) use writer::Packer;

/// Begins the trailer; the last digit is the version.
const MAGIC: &[u8; 8] = b"TCXPACK1";
/// The magic, the number of rows, and the digest.
const TRAILER: usize = 8 + 8 + blake3::OUT_LEN;

/// Entries of the schema's metadata.
const VERSION: &str = "tcx.pack";
const MODULE: &str = "tcx.module";
const IDENTITY: &str = "tcx.identity";
const SPEC: &str = "tcx.spec";

/// The version that this program writes and reads.
const KNOWN_VERSION: &str = "1";

/// Whether a stream with this schema is a packed module.
pub(crate) fn is_packed(schema: &Schema) -> bool {
    schema.metadata().contains_key(VERSION)
}

/// Compares rows by their views, then by their ids: integers as numbers, text and bytes by their bytes.
pub(crate) fn in_order(spec: &Spec, a: (u32, &[u8]), b: (u32, &[u8])) -> Ordering {
    let by_id = || match spec.key_type() {
        KeyType::Int => ids::integer(a.1).cmp(&ids::integer(b.1)),
        _ => a.1.cmp(b.1),
    };
    a.0.cmp(&b.0).then_with(by_id)
}
