//! Checksums: one per block of a file, made while it is written.

use std::io::{self, Write};

use crc_fast::{CrcAlgorithm, Digest};

/// Bytes of a file under one checksum, where nothing else is said.
pub(crate) const CHECKSUM_BLOCK: usize = 64 * 1024;

/// CRC-64/NVME.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes)
}

fn digest() -> Digest {
    Digest::new(CrcAlgorithm::Crc64Nvme)
}

/// Writes the checksum of everything behind it.
pub(crate) struct ChecksummedWriter<W> {
    out: W,
    digest: Digest,
}

impl<W: Write> ChecksummedWriter<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, digest: digest() }
    }

    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.digest.update(bytes);
        self.out.write_all(bytes)
    }

    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.out.write_all(&self.digest.finalize().to_le_bytes())?;
        self.out.flush()
    }
}

/// Makes the checksums of a stream of bytes.
pub(crate) struct BlockChecksums {
    block: usize,
    digest: Digest,
    filled: usize,
    blocks: Vec<u64>,
}

impl BlockChecksums {
    /// One for each block of this size; the last block may be smaller.
    pub(crate) fn new(block: usize) -> Self {
        Self { block, digest: digest(), filled: 0, blocks: Vec::new() }
    }

    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (head, rest) = bytes.split_at(bytes.len().min(self.block - self.filled));
            self.digest.update(head);
            self.filled += head.len();
            if self.filled == self.block {
                self.close_block();
            }
            bytes = rest;
        }
    }

    fn close_block(&mut self) {
        self.blocks.push(self.digest.finalize_reset());
        self.filled = 0;
    }

    pub(crate) fn finish(mut self) -> Vec<u64> {
        if self.filled > 0 {
            self.close_block();
        }
        self.blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_in_any_pieces_has_the_checksums_of_its_blocks() {
        let bytes: Vec<u8> = (0..3 * CHECKSUM_BLOCK + 17).map(|i| (i * 31 % 251) as u8).collect();
        let whole: Vec<u64> = bytes.chunks(CHECKSUM_BLOCK).map(checksum).collect();
        for piece in [1, 100, CHECKSUM_BLOCK, CHECKSUM_BLOCK + 1, bytes.len()] {
            let mut stream = BlockChecksums::new(CHECKSUM_BLOCK);
            bytes.chunks(piece).for_each(|piece| stream.update(piece));
            assert_eq!(stream.finish(), whole);
        }
    }
}
