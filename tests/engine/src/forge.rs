//! Files that no store has written, with their checksums right: what an attacker who knows the format could leave.

use crc_fast::{CrcAlgorithm, checksum};

/// Bytes of an index run under one checksum.
const BLOCK: usize = 64 << 10;
/// Bytes of a segment's table of checksums under one checksum.
const TABLE_PART: usize = 4096;
/// What a segment ends in: the footer's length and the magic.
const CLOSING: usize = 10;
/// The end-of-stream marker before the footer.
const END_OF_STREAM: [u8; 8] = [255, 255, 255, 255, 0, 0, 0, 0];

fn crc(bytes: &[u8]) -> u64 {
    checksum(CrcAlgorithm::Crc64Nvme, bytes)
}

/// A change or merged changes of this number and kind.
pub fn change(number: u64, kind: u32, nonce: [u8; 16], payload: &[u8]) -> Vec<u8> {
    let mut bytes = b"TCXCHG01".to_vec();
    bytes.extend_from_slice(&1_u32.to_le_bytes());
    bytes.extend_from_slice(&kind.to_le_bytes());
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(&nonce);
    bytes.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    bytes.extend_from_slice(payload);
    bytes.extend_from_slice(&[0; 8]);
    seal_end(&mut bytes);
    bytes
}

/// The last eight bytes are the checksum of those before: changes, parts of index runs.
pub fn seal_end(bytes: &mut [u8]) {
    if let Some((bytes, sum)) = bytes.split_last_chunk_mut::<8>() {
        *sum = crc(bytes).to_le_bytes();
    }
}

/// Makes the checksums of an index run right, as far as there is room for them.
pub fn seal_run(bytes: &mut [u8]) -> Option<()> {
    let number = |at: usize| usize::try_from(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?)).ok();
    let (header, lines) = (number(32)?, number(bytes.len().checked_sub(16)?)?);
    let trailer = header.checked_add(lines.checked_mul(64)?)?;
    let (lines, sums) = bytes.get_mut(header..)?.split_at_mut_checked(trailer - header)?;
    for (sum, block) in sums.chunks_exact_mut(8).zip(lines.chunks(BLOCK)) {
        sum.copy_from_slice(&crc(block).to_le_bytes());
    }
    seal_end(bytes.get_mut(..header)?);
    seal_end(&mut bytes[trailer..]);
    Some(())
}

/// A valid segment, whose bytes can be changed.
#[derive(Clone, Debug)]
pub struct ForgedSegment {
    /// All of them; they stay as many.
    pub bytes: Vec<u8>,
    /// Where the table of checksums and the tail begin.
    body: usize,
    tail: usize,
    /// Bytes of a block.
    block: usize,
    /// Where the checksums of the table stand.
    sums: usize,
}

impl ForgedSegment {
    /// # Panics
    ///
    /// If it is no valid segment.
    pub fn of(bytes: Vec<u8>) -> Self {
        let closing = bytes.len() - CLOSING;
        let footer = u32::from_le_bytes(*bytes[closing..].first_chunk().unwrap()) as usize;
        let tail = closing - footer - END_OF_STREAM.len();
        let entries = arrow_ipc::root_as_footer(&bytes[tail + END_OF_STREAM.len()..closing]).unwrap();
        let number = |name| -> usize {
            let mut entries = entries.custom_metadata().unwrap().iter();
            let entry = entries.find(|entry| entry.key() == Some(name)).unwrap();
            entry.value().unwrap().parse().unwrap()
        };
        let (body, block) = (number("tcx.body"), number("tcx.block"));
        let first = format!("{:016x}", crc(&bytes[body..tail.min(body + TABLE_PART)]));
        let sums = bytes[tail..].windows(16).position(|window| window == first.as_bytes()).unwrap();
        Self { body, tail, block, sums: tail + sums, bytes }
    }

    /// Puts this in the place of a text of the footer that is as long.
    ///
    /// # Panics
    ///
    /// If the footer has no such text.
    pub fn replace(&mut self, text: &str, new: &str) {
        assert_eq!(text.len(), new.len());
        let mut windows = self.bytes[self.tail..].windows(text.len());
        let at = self.tail + windows.position(|window| window == text.as_bytes()).unwrap();
        self.bytes[at..at + new.len()].copy_from_slice(new.as_bytes());
    }

    /// The text of the footer behind this one.
    pub fn text_behind(&self, text: &str, len: usize) -> String {
        let footer = String::from_utf8_lossy(&self.bytes[self.tail..]).into_owned();
        footer.split_once(text).unwrap().1.chars().take(len).collect()
    }

    /// Makes the checksums right; tells the name and the bytes.
    pub fn seal(mut self) -> (String, Vec<u8>) {
        let (before, rest) = self.bytes.split_at_mut(self.tail);
        let (body, table) = before.split_at_mut(self.body);
        for (sum, block) in table.chunks_exact_mut(8).zip(body.chunks(self.block)) {
            sum.copy_from_slice(&crc(block).to_le_bytes());
        }
        let digits = rest[self.sums - self.tail..].chunks_exact_mut(16);
        for (digits, part) in digits.zip(table.chunks(TABLE_PART)) {
            digits.copy_from_slice(format!("{:016x}", crc(part)).as_bytes());
        }
        (segment_name(rest), self.bytes)
    }
}

/// A file of this body and footer; tells its name too.
pub fn segment(body: &[u8], footer: &[u8]) -> (String, Vec<u8>) {
    let tail = [&END_OF_STREAM[..], footer, &(footer.len() as u32).to_le_bytes(), b"ARROW1"].concat();
    (segment_name(&tail), [body, &tail].concat())
}

/// The name of a segment with this tail. The random part is taken from the tail too: the same file has the same name.
fn segment_name(tail: &[u8]) -> String {
    let sum = crc(tail);
    format!("seg-{sum:016x}{:016x}-{sum:016x}.arrow", !sum)
}
