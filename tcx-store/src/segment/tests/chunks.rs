//! Compressed buffers in chunks: every row is what it is without compression, however chunks and rows lie, and what no writer makes is
//! damage.

use super::forged::forged;
use super::{COMPRESSIONS, Folder, dense, optional, record_batches, value};
use crate::changes::Seen;
use crate::computed::RowBatch;
use crate::segment::*;
use crate::testing::simulation::chance::Chance;
use crate::{Column, ColumnType, Compression, DType, DYNAMIC_DIM, Field, KeyType, Keys, LeafKind};

const CODECS: [Compression; 2] = [Compression::Lz4, Compression::Zstd];
const TOKENS: ColumnType = ColumnType::Ragged { dtype: DType::I16, shape: &[DYNAMIC_DIM, 2] };
const MAPS: ColumnType = ColumnType::Ragged { dtype: DType::U8, shape: &[DYNAMIC_DIM, DYNAMIC_DIM] };

/// Bytes that compress well, that do not, or that are zeros, by the row.
fn bytes(row: usize, len: usize) -> Vec<u8> {
    let mut chance = Chance::new(row as u64);
    match row % 5 {
        0 => vec![0; len],
        1 | 2 => (0..len).map(|_| chance.below(256) as u8).collect(),
        _ => (0..len).map(|i| (i / 5 % 11 + row % 7) as u8).collect(),
    }
}

/// How long a row is that differs in length: mostly short, some of none, one longer than several chunks.
fn len(row: usize, most: usize) -> usize {
    match row {
        7 => 70_000.min(most * 100),
        _ if row.is_multiple_of(6) => 0,
        _ => row * 7_919 % (most + 1),
    }
}

/// One column of a row: its bytes, and whether it has a value.
fn cell(leaf: &Leaf, row: usize) -> (Vec<u8>, bool) {
    let present = !leaf.optional || !row.is_multiple_of(3);
    let (rows, unit) = (leaf.kind.width(), leaf.kind.unit() * leaf.kind.element_bytes());
    let bytes = match &leaf.kind {
        LeafKind::Dense { .. } if !present => vec![0; rows.unwrap()],
        _ if !present => Vec::new(),
        LeafKind::Dense { .. } if leaf.name.strip_suffix(".sizes").is_some() => {
            [1, len(row, 500) as i64].map(i64::to_le_bytes).concat()
        }
        LeafKind::Dense { .. } => bytes(row, rows.unwrap()),
        LeafKind::Text => "é".repeat(len(row, 300)).into_bytes(),
        LeafKind::Bytes => bytes(row, len(row, 9_000)),
        LeafKind::Ragged { .. } => bytes(row, unit * len(row, 500)),
    };
    (bytes, present)
}

fn batch(folder: &Folder, rows: usize) -> RowBatch {
    let column = |leaf: &Leaf| {
        let cells: Vec<_> = (0..rows).map(|row| cell(leaf, row)).collect();
        let ends = cells.iter().scan(0, |end, (bytes, _)| {
            *end += bytes.len();
            Some(*end)
        });
        let all = cells.iter().flat_map(|(bytes, _)| bytes.clone()).collect::<Vec<_>>();
        let column = match leaf.kind {
            LeafKind::Text => Column::text(cells.iter().map(|(bytes, _)| str::from_utf8(bytes).unwrap())),
            LeafKind::Dense { .. } => Column::dense(&all),
            _ => Column::varying(all, ends),
        };
        if leaf.optional { column.optional(cells.iter().map(|(_, present)| *present)) } else { column }
    };
    let keys = Keys::ints(0..rows as i64, 0);
    let columns = folder.leaves.iter().map(column).collect();
    RowBatch::new(keys, columns, &folder.leaves, Seen::default(), None).unwrap()
}

/// A segment of these rows.
fn write(folder: &Folder, rows: usize) -> Segment {
    let batch = batch(folder, rows);
    let all = [Piece { source: PieceSource::Batch(&batch), rows: PieceRows::Range(0..rows) }];
    folder.open(folder.write(&all, &[]).unwrap())
}

fn folder(output: &'static ColumnType, compression: Compression) -> Folder {
    Folder { compression, ..Folder::with(KeyType::Int, output.leaves()) }
}

/// The leaves of a row as a lookup finds them.
fn found(segment: &Segment, row: usize) -> Option<Vec<(Vec<u8>, bool)>> {
    let (rows, number) = segment.packed_rows(row)?;
    let unpacked = segment.unpack(rows)?;
    let leaf = |leaf| unpacked.value(leaf, number).map(|(bytes, present)| (bytes.to_vec(), present));
    (0..segment.leaves.len()).map(leaf).collect()
}

/// Every row is found, is read, and is shown to other programs as it was given.
fn check(folder: &Folder, segment: &Segment, rows: usize) {
    let name = format!("{:?} of {rows} rows", folder.compression);
    assert_eq!(segment.judge_all(), Verdict::Sound, "{name}");
    let batches = record_batches(&folder.path(segment.name()));
    let mut shown = batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| (batch, row)));
    for row in 0..rows {
        let expected: Vec<_> = folder.leaves.iter().map(|leaf| cell(leaf, row)).collect();
        assert!(found(segment, row).as_ref() == Some(&expected), "row {row} of {name}");
        let (batch, at) = shown.next().unwrap();
        for (column, (bytes, present)) in batch.columns()[2..].iter().zip(&expected) {
            assert!(value(column, at) == *bytes && column.is_valid(at) == *present, "row {row} of {name}");
        }
        let read = segment.read_row(row).unwrap();
        assert!(read.iter().map(|(bytes, is)| (bytes.to_vec(), *is)).eq(expected), "row {row} of {name}");
    }
    assert!(shown.next().is_none() && found(segment, rows).is_none());
}

/// Without the entry that says how many rows are decompressed together: as segments were written before there were chunks.
fn without_chunks(folder: &Folder, segment: &Segment) -> Segment {
    forge(folder, segment, |bytes| replace(bytes, b"tcx.chunk_rows", b"tcx.other_rows"))
}

fn forge(folder: &Folder, segment: &Segment, change: impl FnOnce(&mut Vec<u8>)) -> Segment {
    let (name, bytes) = forged(segment, change);
    std::fs::write(folder.path(name), bytes).unwrap();
    folder.open(name)
}

/// Overwrites the last occurrence, which has to exist.
fn replace(bytes: &mut [u8], old: &[u8], new: &[u8]) {
    let at = bytes.windows(old.len()).rposition(|window| window == old).unwrap();
    bytes[at..at + old.len()].copy_from_slice(new);
}

/// Leaves of one width each.
macro_rules! widths {
    ($($width:literal),*) => {
        [$(&ColumnType::Dense { dtype: DType::U8, shape: &[$width] }),*]
    };
}

#[test]
fn rows_of_every_width_are_the_same_in_chunks() {
    const WIDTHS: [&ColumnType; 14] =
        widths!(1, 7, 100, 1023, 1024, 4096, 5000, 8191, 8192, 8193, 20_000, 65_535, 65_536, 65_537);
    for output in WIDTHS {
        for compression in CODECS {
            let folder = folder(output, compression);
            // Fewer and more than a record batch has.
            for rows in [0, 1, 2, 70] {
                let segment = write(&folder, rows);
                check(&folder, &segment, rows);
                check(&folder, &without_chunks(&folder, &segment), rows);
            }
        }
    }
}

#[test]
fn leaves_of_every_kind_are_the_same_in_chunks() {
    const OUTPUT: ColumnType = ColumnType::Struct(&[
        dense("wide", DType::F32, &[1500]),
        dense("score", DType::I64, &[]),
        Field { name: "text", column: ColumnType::Text },
        optional("maybe", &ColumnType::Dense { dtype: DType::I16, shape: &[40] }),
        optional("words", &ColumnType::Text),
        Field { name: "image", column: ColumnType::Bytes },
        optional("tokens", &TOKENS),
        Field { name: "maps", column: MAPS },
        dense("flag", DType::I8, &[]),
    ]);
    const SMALL: ColumnType = ColumnType::Struct(&[
        optional("maybe", &ColumnType::Dense { dtype: DType::I8, shape: &[3] }),
        optional("words", &ColumnType::Text),
    ]);
    for (output, rows) in
        [(&OUTPUT, 150), (&SMALL, 1500), (&ColumnType::Text, 900), (&TOKENS, 900), (&MAPS, 300)]
    {
        for compression in CODECS {
            let folder = folder(output, compression);
            let segment = write(&folder, rows);
            check(&folder, &segment, rows);
            check(&folder, &without_chunks(&folder, &segment), rows);
        }
    }
}

#[test]
fn joined_segments_have_the_rows_of_those_that_they_are_made_of_whatever_their_chunks() {
    const OUTPUT: ColumnType = ColumnType::Struct(&[
        dense("wide", DType::U8, &[3000]),
        optional("words", &ColumnType::Text),
        optional("tokens", &TOKENS),
    ]);
    let sources: Vec<Segment> = COMPRESSIONS.map(|codec| write(&folder(&OUTPUT, codec), 120)).into();
    for compression in COMPRESSIONS {
        let folder = folder(&OUTPUT, compression);
        let pieces: Vec<_> = (0..120)
            .step_by(40)
            .zip(&sources)
            .map(|(row, source)| Piece {
                source: PieceSource::Segment(source),
                rows: PieceRows::Range(row..row + 40),
            })
            .collect();
        let joined = folder.open(folder.write(&pieces, &[]).unwrap());
        if compression == Compression::None {
            assert!((0..120).all(|row| joined.has_intact_leaves(row, None)));
            continue;
        }
        check(&folder, &joined, 120);
    }
}

#[test]
fn a_row_of_8_kib_is_decompressed_with_little_else() {
    const WIDE: ColumnType = ColumnType::Dense { dtype: DType::F32, shape: &[2048] };
    const PARTS: ColumnType = ColumnType::Struct(&[
        dense("a", DType::U8, &[4096]),
        dense("b", DType::U8, &[4080]),
        dense("score", DType::I64, &[]),
        Field { name: "text", column: ColumnType::Text },
    ]);
    for output in [&WIDE, &PARTS] {
        for compression in CODECS {
            let folder = folder(output, compression);
            let segment = write(&folder, 70);
            let (rows, _) = segment.packed_rows(33).unwrap();
            assert_eq!(rows.rows.len(), 1, "{compression:?}");
            // Of every part of the file that it reads.
            let batch = segment.packed_batch(rows.batch).unwrap();
            let read = std::cell::Cell::new(0);
            Unpacked::new(batch, rows.rows, &|range: Range<usize>| {
                read.set(read.get() + range.len());
                segment.verified(range)
            })
            .unwrap();
            assert!(read.get() < 12 << 10, "{compression:?} reads {} bytes", read.get());
        }
    }
}

/// The table of the last record batch, and where it begins.
fn table(segment: &Segment) -> (usize, String) {
    let number = segment.batches.first_rows().last().unwrap().0;
    let (header, _) = segment.batches.ranges(number).unwrap();
    let table = layout::chunk_table(&segment.map[header]).unwrap();
    (table.as_ptr().addr() - segment.map.as_ptr().addr(), table.to_owned())
}

#[test]
fn a_table_that_no_writer_makes_is_damage() {
    const OUTPUT: ColumnType = ColumnType::Struct(&[
        dense("vector", DType::U8, &[5000]),
        Field { name: "text", column: ColumnType::Text },
    ]);
    for compression in CODECS {
        let folder = folder(&OUTPUT, compression);
        let segment = write(&folder, 40);
        let (at, own) = table(&segment);
        let mut tables = Vec::new();
        // Other numbers in the place of each.
        for (start, _) in own.match_indices(|letter: char| letter.is_ascii_digit()) {
            let begins = start == 0 || !own.as_bytes()[start - 1].is_ascii_digit();
            let digits =
                own[start..].find(|letter: char| !letter.is_ascii_digit()).unwrap_or(own.len() - start);
            if !begins {
                continue;
            }
            let number: usize = own[start..start + digits].parse().unwrap();
            for other in
                ["0".repeat(digits), "9".repeat(digits), (number + 1).to_string(), (number - 1).to_string()]
            {
                if other.len() == digits {
                    tables.push([&own[..start], &other, &own[start + digits..]].concat());
                }
            }
        }
        for (start, letter) in own.char_indices() {
            for other in [" ", ";", "x", "-"].into_iter().filter(|other| !other.starts_with(letter)) {
                tables.push([&own[..start], other, &own[start + 1..]].concat());
            }
        }
        let (count, mut refused) = (tables.len(), 0);
        for table in tables {
            let forged = forge(&folder, &segment, |bytes| {
                bytes[at..at + table.len()].copy_from_slice(table.as_bytes());
            });
            let is_sound = forged.judge_all() == Verdict::Sound;
            // A single chunk may have any length that is enough.
            let is_same = (0..40).all(|row| found(&forged, row) == found(&segment, row));
            assert!(is_same || !is_sound, "{table} for {own}");
            refused += usize::from(!is_sound);
        }
        assert!(refused > 100 && refused + 10 > count, "{refused} of {count}");
    }
}

#[test]
fn a_chunk_that_is_not_what_was_compressed_is_damage() {
    const OUTPUT: ColumnType = ColumnType::Dense { dtype: DType::U8, shape: &[8192] };
    for compression in CODECS {
        let folder = folder(&OUTPUT, compression);
        let segment = write(&folder, 5);
        let batch = segment.packed_batch(0).unwrap();
        let stored: Vec<_> = (0..5).map(|row| batch.stored(&(row..row + 1)).next().unwrap()).collect();
        let mut refused = 0;
        // Row 3 compresses well.
        for at in stored[3].clone() {
            for wrong in [1, 0x7f, 0xff] {
                let forged = forge(&folder, &segment, |bytes| bytes[at] ^= wrong);
                assert!(found(&forged, 3).is_none_or(|row| row[0].0.len() == 8192));
                assert_eq!(found(&forged, 4), found(&segment, 4));
                refused += usize::from(found(&forged, 3).is_none());
            }
        }
        assert!(refused > 50, "{refused}");
    }
}
