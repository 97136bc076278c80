//! How segments are laid out.

use super::{Folder, ids};
use crate::KeyType;
use crate::segment::*;

#[test]
fn the_view_that_all_written_rows_share_is_the_segments() {
    let folder = Folder::new(KeyType::Int);
    let (plain, augmented) = (folder.batch(0..3, 0), folder.batch(0..3, 7));
    let both = [&plain, &augmented]
        .map(|batch| Piece { source: PieceSource::Batch(batch), rows: PieceRows::Range(0..3) });
    let mixed = folder.open(folder.write(&both, &[]).unwrap());
    assert_eq!(mixed.view, None);
    assert_eq!(mixed.inputs(), []);
    let rows = PieceRows::Selected(&[4, 5]);
    let name = folder.write(&[Piece { source: PieceSource::Segment(&mixed), rows }], &[]).unwrap();
    assert_eq!(folder.open(name).view, Some(7));
    folder.check(name, &[(1, 7), (2, 7)]);
}

#[test]
fn the_values_of_large_columns_begin_at_pages_and_those_of_small_ones_waste_none() {
    let folder = Folder::new(KeyType::Text);
    let batch = folder.batch(0..20, 0);
    let rows = |rows: usize| [Piece { source: PieceSource::Batch(&batch), rows: PieceRows::Range(0..rows) }];
    let segment = folder.open(folder.write(&rows(20), &[]).unwrap());
    let (mut large, mut end) = (0, 0);
    for leaf in segment.batch.leaves.iter().take_while(|leaf| leaf.offsets.is_none()) {
        let step = if leaf.len < 1 << 16 { 64 } else { 4096 };
        assert_eq!(leaf.values % step, 0);
        assert!(leaf.values - end < step + 64 || end == 0, "{} after {end}", leaf.values);
        end = leaf.values + leaf.len;
        large += usize::from(step == 4096);
    }
    assert_eq!(large, 1, "the one of 70,000 bytes a row");
    folder.check(segment.name(), &ids(0..20, 0).collect::<Vec<_>>());
}
