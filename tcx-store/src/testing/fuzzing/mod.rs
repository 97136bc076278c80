//! A door to everything that decodes bytes of unknown origin, for tests that make such bytes up.
//!
//! Each decoder takes the bytes of a file or of a part of one, decodes them as they are and with their checksums made
//! right, which is how what lies behind the checksums is reached, and uses what it gets as the store would. It panics where
//! the store would, and where it held more memory than a small multiple of the bytes.

mod allocations;
mod names;
#[cfg(test)]
mod seeds;
#[cfg(test)]
mod tests;

use std::io::Write;

use crate::sys::mmap::Mapped;

/// Memory that a decoder may hold at once: so many bytes, and so many for each byte it is given.
const HELD: usize = 64 << 10;
const HELD_PER_BYTE: usize = 64;
/// What a record batch may be decompressed to, twice: while its rows are copied.
const UNPACKED: usize = 2 * crate::segment::MOST_UNPACKED;

/// The entry of a footer that names a codec.
const CODEC: &[u8] = b"tcx.codec";

/// A decoder and the name of its folder in the corpus.
pub type Decoder = (&'static str, fn(&[u8]));

/// Every decoder. A new one is a line here, and a folder with files for it in `fuzz/corpus`.
pub const DECODERS: &[Decoder] = &[
    ("name", |bytes| limited(bytes, names::decode)),
    ("identity", |bytes| limited(bytes, crate::changes::fuzzing::identity)),
    ("change", |bytes| limited(bytes, crate::changes::fuzzing::change)),
    ("tombstones", |bytes| limited(bytes, crate::changes::fuzzing::tombstones)),
    ("run", |bytes| limited(bytes, crate::index::fuzzing::run)),
    ("footer", |bytes| limited(bytes, crate::segment::fuzzing::footer)),
    ("batch", |bytes| limited(bytes, crate::segment::fuzzing::batch)),
    ("segment", |bytes| limited(bytes, crate::segment::fuzzing::segment)),
    ("session", |bytes| limited(bytes, crate::sessions::fuzzing::session)),
];

fn limited(bytes: &[u8], decode: fn(&[u8])) {
    let held = allocations::most_held(|| decode(bytes));
    let is_compressed = bytes.windows(CODEC.len()).any(|window| window == CODEC);
    let limit = HELD + HELD_PER_BYTE * bytes.len() + if is_compressed { UNPACKED } else { 0 };
    assert!(held <= limit, "{held} bytes were held for {} bytes, at most {limit} are allowed", bytes.len());
}

/// The bytes as those of a file.
pub(crate) fn mapped(bytes: &[u8]) -> Mapped {
    let mut file = tempfile::tempfile().expect("a temporary file can be made");
    file.write_all(bytes).expect("a temporary file can be written");
    Mapped::new(&file).expect("a temporary file can be mapped")
}
