//! What is written of buffered batches and of other segments is what arrow and both readers read.

use std::io;

use super::{Folder, every_kind, ids, key};
use crate::KeyType;
use crate::schema::key::KeySeed;
use crate::segment::open::tail_len;
use crate::segment::{Piece, PieceRows, PieceSource};
use crate::sys::checksum::CHECKSUM_BLOCK;

#[test]
fn arrow_reads_every_leaf_kind_key_type_and_codec_of_buffered_rows() {
    for (key_type, compression) in every_kind() {
        let folder = Folder::compressed(key_type, compression);
        let (first, second) = (folder.batch(0..40, 0), folder.batch(100..110, 0));
        let pieces = [
            Piece { source: PieceSource::Batch(&first), rows: PieceRows::Range(0..40) },
            Piece { source: PieceSource::Batch(&second), rows: PieceRows::Selected(&[0, 1, 2, 5, 7, 9]) },
            Piece { source: PieceSource::Batch(&second), rows: PieceRows::Selected(&[]) },
            Piece { source: PieceSource::Batch(&second), rows: PieceRows::Range(3..4) },
        ];
        let name = folder.write(&pieces, &[]).unwrap();
        let expected: Vec<_> = ids((0..40).chain([100, 101, 102, 105, 107, 109, 103]), 0).collect();
        folder.check(name, &expected);
        let hashes: Vec<_> = pieces.iter().flat_map(|piece| piece.hashes(KeySeed::NONE).unwrap()).collect();
        let expected = expected.iter().map(|&(id, view)| KeySeed::NONE.hash(&key(key_type, id), view));
        assert_eq!(hashes, expected.collect::<Vec<_>>());
    }
}

#[test]
fn rows_of_segments_and_batches_are_joined_whatever_their_record_batches_codecs_and_views() {
    for (key_type, compression) in every_kind() {
        let mut folder = Folder::new(key_type);
        let (plain, augmented) = (folder.batch(0..20, 0), folder.batch(0..20, 7));
        let mixed = folder.write(
            &[
                Piece { source: PieceSource::Batch(&plain), rows: PieceRows::Range(0..20) },
                Piece { source: PieceSource::Batch(&augmented), rows: PieceRows::Range(10..20) },
            ],
            &[],
        );
        let mixed = mixed.unwrap();
        let in_batches = folder.open(folder.in_batches_of(mixed, 4));
        folder.check(in_batches.name(), &ids(0..20, 0).chain(ids(10..20, 7)).collect::<Vec<_>>());
        folder.compression = compression;
        let whole =
            Piece { source: PieceSource::Segment(&folder.open(mixed)), rows: PieceRows::Range(0..30) };
        let mixed = folder.open(folder.write(&[whole], &[]).unwrap());
        let pieces = [
            Piece { source: PieceSource::Segment(&in_batches), rows: PieceRows::Range(2..27) },
            Piece { source: PieceSource::Segment(&mixed), rows: PieceRows::Selected(&[0, 1, 25, 29]) },
            Piece { source: PieceSource::Batch(&plain), rows: PieceRows::Selected(&[3]) },
            Piece { source: PieceSource::Segment(&mixed), rows: PieceRows::Range(0..30) },
        ];
        let inputs = [in_batches.name(), mixed.name()];
        let name = folder.write(&pieces, &inputs).unwrap();
        let joined = ids(2..20, 0).chain(ids(10..17, 7));
        let selected = ids(0..2, 0).chain(ids([15, 19], 7)).chain(ids([3], 0));
        let expected: Vec<_> = joined.chain(selected).chain(ids(0..20, 0)).chain(ids(10..20, 7)).collect();
        folder.check(name, &expected);
        let hashes: Vec<_> = pieces.iter().flat_map(|piece| piece.hashes(KeySeed::NONE).unwrap()).collect();
        let expected = expected.iter().map(|&(id, view)| KeySeed::NONE.hash(&key(key_type, id), view));
        assert_eq!(hashes, expected.collect::<Vec<_>>());
        let segment = folder.open(name);
        assert_eq!((segment.base(), segment.born(), segment.view), (3, 5, None));
        assert_eq!(segment.inputs(), inputs);
    }
}

#[test]
fn a_row_that_does_not_verify_is_an_error_that_names_its_segment() {
    let folder = Folder::new(KeyType::Text);
    let batch = folder.batch(0..20, 0);
    let whole = || Piece { source: PieceSource::Batch(&batch), rows: PieceRows::Range(0..20) };
    let name = folder.write(&[whole()], &[]).unwrap();
    let written = std::fs::read(folder.path(name)).unwrap();
    let blocks = (written.len() - tail_len(&written).unwrap()) / CHECKSUM_BLOCK;
    let mut refused = 0;
    for block in 0..=blocks {
        let mut bytes = written.clone();
        bytes[block * CHECKSUM_BLOCK + 2000] ^= 1;
        std::fs::remove_file(folder.path(name)).unwrap();
        std::fs::write(folder.path(name), bytes).unwrap();
        let Ok(damaged) = folder.try_open(name) else { continue };
        let piece = |rows| Piece { source: PieceSource::Segment(&damaged), rows };
        let error = folder.write(&[whole(), piece(PieceRows::Range(0..20))], &[]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().contains(&name.to_string()), "{error}");
        refused += 1;
        // A row of the same segment that can be read whole is written.
        let good: Vec<u32> = (0..20)
            .filter(|&row| {
                let leaves = (0..folder.leaves.len()).all(|leaf| damaged.leaf(leaf, row as usize).is_some());
                leaves && damaged.key(row as usize).is_some()
            })
            .collect();
        let copy = folder.write(&[whole(), piece(PieceRows::Selected(&good))], &[]).unwrap();
        let good = good.iter().map(|&row| i64::from(row));
        folder.check(copy, &ids((0..20).chain(good), 0).collect::<Vec<_>>());
    }
    assert!(refused > 15, "{refused} blocks");
}
