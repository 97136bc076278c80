//! SHA-256 of files.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::failure::{OnPath, Result};

/// A read of this size is large enough for the disk and small enough for the processor's cache.
const READ: usize = 1 << 18;

/// The SHA-256 of a file's bytes, in lower-case hexadecimal.
pub(crate) fn sha256(path: &Path) -> Result<String> {
    let mut file = File::open(path).on("open", path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; READ];
    loop {
        let read = file.read(&mut buffer).on("read", path)?;
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
    }
    Ok(hexadecimal(&hasher.finalize()))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_standard_s_examples() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bytes");
        std::fs::write(&file, "").unwrap();
        assert_eq!(
            sha256(&file).unwrap(),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        std::fs::write(&file, "abc").unwrap();
        assert_eq!(
            sha256(&file).unwrap(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn reads_past_one_buffer() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bytes");
        std::fs::write(&file, vec![b'a'; 1_000_000]).unwrap();
        assert_eq!(
            sha256(&file).unwrap(),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"
        );
    }

    #[test]
    fn a_missing_file_is_named() {
        let failure = sha256(Path::new("no/such/file")).unwrap_err();
        assert!(failure.to_string().contains("no/such/file"));
    }
}
