//! Verifying one file by itself, without the others of its folder.

use crate::changes::verify_change;
use crate::segment::verify_segment;
use crate::storage::name::FileName;

/// Whether a file of this name, a segment or a change, consists of the bytes that were written, or what is wrong with it. What another
/// version of tcx has written passes.
///
/// # Errors
///
/// Returns what is wrong.
pub fn verify_file(name: &str, bytes: &[u8]) -> Result<(), String> {
    match FileName::parse(name) {
        Some(FileName::Segment(name)) => verify_segment(name, bytes),
        Some(FileName::Change(number) | FileName::Merged(number)) => verify_change(number, bytes),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::testing::compute;
    use crate::{Compression, Keys, Options, Store};

    #[test]
    fn no_byte_of_a_segment_or_change_can_differ() {
        for compression in [Compression::None, Compression::Lz4] {
            let dir = tempfile::tempdir().unwrap();
            let options = Options { compression, ..Options::default() };
            let store = Store::open(dir.path(), crate::testing::spec(), &options).unwrap();
            compute(&store, &["a", "b"], 7);
            store.flush().unwrap();
            store.invalidate(&Keys::text(["a"], 0).unwrap()).unwrap();
            for entry in fs::read_dir(dir.path().join("m_v1")).unwrap() {
                let entry = entry.unwrap();
                let name = entry.file_name().into_string().unwrap();
                if !name.starts_with("seg-") && !name.starts_with("change-") {
                    continue;
                }
                let bytes = fs::read(entry.path()).unwrap();
                assert_eq!(verify_file(&name, &bytes), Ok(()), "{name}");
                for at in 0..bytes.len() {
                    let mut damaged = bytes.clone();
                    damaged[at] ^= 16;
                    assert!(verify_file(&name, &damaged).is_err(), "byte {at} of {name}");
                    assert!(verify_file(&name, &bytes[..at]).is_err(), "{at} bytes of {name}");
                }
            }
        }
    }
}
