//! Which blocks are verified, and what a part of the table is good for.

use super::*;
use crate::sys::checksum::CHECKSUM_BLOCK;

#[test]
fn a_changed_block_is_noticed_and_its_neighbours_are_served() {
    let mut bytes = vec![7; 3 * CHECKSUM_BLOCK];
    let checksums = bytes.chunks(CHECKSUM_BLOCK).map(checksum).collect::<Vec<_>>();
    bytes[CHECKSUM_BLOCK] ^= 1;
    assert!(
        VerifiedBlocks::new(CHECKSUM_BLOCK, Checksums::Known(checksums.clone()), bytes.len() + 1).is_none()
    );
    let blocks = VerifiedBlocks::new(CHECKSUM_BLOCK, Checksums::Known(checksums), bytes.len()).unwrap();
    assert!(blocks.verify(&bytes, 0, CHECKSUM_BLOCK));
    assert!(!blocks.verify(&bytes, CHECKSUM_BLOCK - 1, CHECKSUM_BLOCK + 1));
    assert!(blocks.verify(&bytes, 2 * CHECKSUM_BLOCK, 3 * CHECKSUM_BLOCK));
    assert!(!blocks.verify(&bytes, 2 * CHECKSUM_BLOCK, 3 * CHECKSUM_BLOCK + 1));
}

#[test]
fn every_block_counts_wherever_a_range_begins_and_ends() {
    let mut bytes: Vec<u8> = (0..67 * CHECKSUM_BLOCK).map(|i| (i / CHECKSUM_BLOCK) as u8).collect();
    let checksums = bytes.chunks(CHECKSUM_BLOCK).map(checksum).collect::<Vec<_>>();
    let changed = [1, 64];
    for block in changed {
        bytes[block * CHECKSUM_BLOCK] ^= 1;
    }
    let blocks = VerifiedBlocks::new(CHECKSUM_BLOCK, Checksums::Known(checksums), bytes.len()).unwrap();
    assert!(!blocks.were_all_verified(0, 1) && blocks.were_all_verified(7, 7));
    // Twice: first they are verified, then they have been.
    for _ in 0..2 {
        for (first, last) in (0..67).flat_map(|first| (first + 1..67).map(move |last| (first, last))) {
            let good = blocks.verify(&bytes, (first + 1) * CHECKSUM_BLOCK - 1, last * CHECKSUM_BLOCK + 1);
            let expected = !changed.iter().any(|block| (first..=last).contains(block));
            assert_eq!(good, expected, "{first} {last}");
        }
    }
    for (first, last) in (0..67).flat_map(|first| (first + 1..67).map(move |last| (first, last))) {
        let all = blocks.were_all_verified((first + 1) * CHECKSUM_BLOCK - 1, last * CHECKSUM_BLOCK + 1);
        assert_eq!(all, !changed.iter().any(|block| (first..=last).contains(block)), "{first} {last}");
    }
    assert!(!blocks.were_all_verified(66 * CHECKSUM_BLOCK, bytes.len() + 1));
}

/// A file of blocks of 16 bytes and the table of their checksums behind them.
fn with_table(count: usize) -> (Vec<u8>, Vec<u64>) {
    let body: Vec<u8> = (0..count * 16).map(|i| (i * 31 % 251) as u8).collect();
    let table: Vec<u8> = body.chunks(16).flat_map(|block| checksum(block).to_le_bytes()).collect();
    let parts = table.chunks(TABLE_PART).map(checksum).collect();
    ([body, table].concat(), parts)
}

fn open(count: usize, parts: &[u64]) -> VerifiedBlocks {
    let table = ChecksumTable::new(count * 16, count, parts.to_vec()).unwrap();
    VerifiedBlocks::new(16, Checksums::InFile(table), count * 16).unwrap()
}

#[test]
fn a_damaged_part_of_the_table_keeps_its_blocks_from_being_served_and_no_others() {
    const COUNT: usize = 3 * TABLE_PART / CHECKSUM + 5;
    const IN_PART: usize = TABLE_PART / CHECKSUM;
    let (file, parts) = with_table(COUNT);
    assert_eq!(parts.len(), 4);
    assert!(ChecksumTable::new(COUNT * 16, COUNT, parts[1..].to_vec()).is_none());
    assert!(ChecksumTable::new(usize::MAX, COUNT, parts.clone()).is_none());
    for damaged in 0..parts.len() {
        let mut bytes = file.clone();
        bytes[COUNT * 16 + damaged * TABLE_PART + 3] ^= 1;
        let (mapped, read) = (open(COUNT, &parts), open(COUNT, &parts));
        for block in 0..COUNT {
            let expected = block / IN_PART != damaged;
            assert_eq!(mapped.verify(&bytes, block * 16, block * 16 + 16), expected, "{block}");
            let own = &bytes[block * 16..][..16];
            let found = read.is_block(block, own, |range| Some(bytes[range].to_vec().into()));
            assert_eq!(found, expected, "{block}");
        }
        assert!(!mapped.verify_again(&bytes) && !mapped.were_all_verified(0, COUNT * 16));
        // Parts that were read are kept.
        let again = read.is_block((damaged + 1) % 4 * IN_PART, &[0; 16], |_| panic!("read again"));
        assert!(!again);
    }
    assert!(open(COUNT, &parts).verify_again(&file));
}

#[test]
fn what_is_needed_to_verify_a_range_is_its_blocks_and_their_checksums_until_it_was_verified() {
    const COUNT: usize = 2 * TABLE_PART / CHECKSUM;
    let (file, parts) = with_table(COUNT);
    let (blocks, table) = (open(COUNT, &parts), COUNT * 16);
    let first = (0..32, Some(table..table + TABLE_PART));
    assert_eq!(blocks.with_unverified(15..17), first);
    assert!(blocks.verify(&file, 15, 17));
    assert_eq!(blocks.with_unverified(15..17), (15..17, None));
    // Of the table, that part was verified.
    assert_eq!(blocks.with_unverified(40..41), (32..48, None));
    let all = (0..COUNT * 16, Some(table..table + 2 * TABLE_PART));
    assert_eq!(blocks.with_unverified(3..COUNT * 16), all);
}

#[test]
fn every_range_of_blocks_was_verified_just_if_each_of_them_was() {
    const COUNT: usize = 64 * 4 + 7;
    let (file, parts) = with_table(COUNT);
    for missing in [0, 1, 63, 64, 130, 191, 192, 255, 256, COUNT - 1] {
        let blocks = open(COUNT, &parts);
        (0..COUNT).filter(|&block| block != missing).for_each(|block| {
            assert!(blocks.verify(&file, block * 16, block * 16 + 16));
        });
        for start in 0..COUNT {
            for end in start + 1..=COUNT {
                let expected = !(start..end).contains(&missing);
                let (from, to) = (start * 16 + 5, end * 16 - 3);
                assert_eq!(blocks.were_all_verified(from, to), expected, "{missing}: {start}..{end}");
                // This one need not know, but is never wrong.
                assert!(expected || !blocks.were_verified(from, to), "{missing}: {start}..{end}");
            }
        }
        assert!(blocks.were_verified(70 * 16, 72 * 16) && !blocks.were_verified(70 * 16, 140 * 16));
    }
}
