//! The checksums of a segment's body: a table of them in the file, or in its footer where version 1 or 2 of the format has written it.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::metadata::MetadataError;
use super::piece::Piece;
use crate::sys::bytes::parse_hex64;
use crate::sys::checksum::{CHECKSUM_BLOCK, checksum};
use crate::sys::verified_blocks::{CHECKSUM, ChecksumTable, Checksums, TABLE_PART, VerifiedBlocks};

/// The size of a block by the average bytes of a row. A row is verified with the rest of its blocks.
///
/// - Many rows share a page: larger reads bring rows that are wanted soon.
/// - A row is a few pages: it is read by itself.
/// - A row is many pages: little is read beside them.
const BLOCKS: [(usize, usize); 3] = [(4 << 10, CHECKSUM_BLOCK), (256 << 10, 4 << 10), (usize::MAX, 16 << 10)];

/// What the footer says of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BodyChecksums {
    /// All of them, one for 64 KiB of the body each, which ends where the tail begins.
    InFooter(Vec<u64>),
    /// They are in a table between the body and the tail.
    InTable {
        /// Bytes of a block.
        block: usize,
        /// Bytes of the body.
        body: usize,
        /// The checksum of each part of the table.
        parts: Vec<u64>,
    },
}

/// The size of a block in a segment of these pieces.
pub(super) fn block_of(pieces: &[Piece<'_>]) -> usize {
    let (rows, bytes) = pieces.iter().fold((0, 0), |(rows, bytes): (usize, usize), piece| {
        (rows + piece.rows(), bytes.saturating_add(piece.rows().saturating_mul(piece.row_bytes())))
    });
    let row = bytes / rows.max(1);
    BLOCKS.iter().find(|(below, _)| row < *below).map_or(CHECKSUM_BLOCK, |(_, block)| *block)
}

/// The table of these checksums, and what the footer says of it.
pub(super) fn table(block: usize, body: usize, checksums: &[u64]) -> (Vec<u8>, BodyChecksums) {
    let table: Vec<u8> = checksums.iter().flat_map(|checksum| checksum.to_le_bytes()).collect();
    let parts = table.chunks(TABLE_PART).map(checksum).collect();
    (table, BodyChecksums::InTable { block, body, parts })
}

impl BodyChecksums {
    /// Where the table begins in the file at the earliest, if its bytes are to be in few pages.
    pub(super) fn table_alignment(blocks: usize) -> usize {
        // A small segment is not made a page larger.
        if blocks * CHECKSUM >= TABLE_PART { TABLE_PART } else { CHECKSUM }
    }

    /// The checksums of a file whose tail begins there, and the length of its body.
    pub(super) fn open(self, tail: usize) -> Result<(VerifiedBlocks, usize), String> {
        let (block, body, checksums) = match self {
            Self::InFooter(checksums) => (CHECKSUM_BLOCK, tail, Some(Checksums::Known(checksums))),
            Self::InTable { block, body, parts } => {
                let count = body.div_ceil(block.max(1));
                let is_before = body.checked_add(count.saturating_mul(CHECKSUM)) == Some(tail);
                let table = if is_before { ChecksumTable::new(body, count, parts) } else { None };
                (block, body, table.map(Checksums::InFile))
            }
        };
        let blocks = checksums.and_then(|checksums| VerifiedBlocks::new(block, checksums, body));
        blocks
            .map(|blocks| (blocks, body))
            .ok_or_else(|| "it does not have one checksum for each block".to_owned())
    }

    pub(super) fn entries(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::InFooter(checksums) => vec![("tcx.checksums", hex(checksums))],
            Self::InTable { block, body, parts } => vec![
                ("tcx.block", block.to_string()),
                ("tcx.body", body.to_string()),
                ("tcx.table", hex(parts)),
            ],
        }
    }

    /// Reads the entries, of the versions of the format that have a table, or of the others.
    pub(super) fn parse(entries: &HashMap<&str, &str>, has_table: bool) -> Result<Self, MetadataError> {
        let get = |name: &'static str| entries.get(name).copied().ok_or(MetadataError::Entry(name));
        let sums = |name| unhex(get(name)?).ok_or(MetadataError::Entry(name));
        if !has_table {
            return sums("tcx.checksums").map(Self::InFooter);
        }
        let number = |name| get(name)?.parse().map_err(|_| MetadataError::Entry(name));
        Ok(Self::InTable {
            block: number("tcx.block")?,
            body: number("tcx.body")?,
            parts: sums("tcx.table")?,
        })
    }
}

fn hex(checksums: &[u64]) -> String {
    let mut hex = String::with_capacity(checksums.len() * 16);
    for checksum in checksums {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{checksum:016x}");
    }
    hex
}

fn unhex(hex: &str) -> Option<Vec<u64>> {
    if !hex.is_ascii() || !hex.len().is_multiple_of(16) {
        return None;
    }
    (0..hex.len() / 16).map(|i| parse_hex64(&hex[i * 16..][..16])).collect()
}
