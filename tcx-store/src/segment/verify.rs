//! Verifying the bytes of a segment by themselves, without knowing the module.

use super::SegmentError;
use super::open::{CLOSING, END_OF_STREAM, footer_metadata, tail_len};
use crate::storage::name::SegmentName;
use crate::sys::checksum::checksum;

/// Whether the bytes of a segment are as they were written. One of another version passes if its tail does: where its checksums are is
/// not known here.
///
/// # Errors
///
/// Returns what is wrong.
pub(crate) fn verify_segment(name: SegmentName, bytes: &[u8]) -> Result<(), String> {
    let tail = tail_len(bytes).and_then(|len| bytes.len().checked_sub(len));
    let tail = tail.ok_or("it is not an Arrow file")?;
    if checksum(&bytes[tail..]) != name.tail {
        return Err("the checksum of its tail is wrong".to_owned());
    }
    let footer = &bytes[tail + END_OF_STREAM..bytes.len() - CLOSING];
    let footer = arrow_ipc::root_as_footer(footer).map_err(|error| format!("its footer: {error}"))?;
    let metadata = match footer_metadata(&footer) {
        Err(SegmentError::Damaged(what)) => return Err(what),
        // Of another version.
        Err(_) => return Ok(()),
        Ok(metadata) => metadata,
    };
    let (blocks, body) = metadata.checksums.open(tail)?;
    if blocks.verify(bytes, 0, body) { Ok(()) } else { Err("a checksum is wrong".to_owned()) }
}
