//! Decompresses blocks of LZ4.
//!
//! The crate `lz4_flex`, which compresses them, copies repetitions of a few bytes byte by byte. Rows of numbers are full of
//! them: zeros, and elements that are equal. This decoder writes them eight bytes at a time.

/// What is copied at once where there is room for it: most literals and matches are shorter.
const WIDE: usize = 16;
/// Fewer bytes of a match are as well copied one by one.
const FEW: usize = 32;
/// The shortest match.
const MATCH: usize = 4;
/// A length that goes on in the next byte.
const LONG: usize = 15;

/// Fills `out` with what the block holds; `None` if that is not just as much, or the block is malformed.
pub(super) fn decompress(block: &[u8], out: &mut [u8]) -> Option<()> {
    let (mut read, mut filled) = (0, 0);
    loop {
        let token = usize::from(*block.get(read)?);
        read += 1;
        let literals = length(token >> 4, block, &mut read)?;
        copy_literals(block.get(read..)?, literals, out, filled)?;
        (read, filled) = (read + literals, filled + literals);
        if read == block.len() {
            // The last sequence has literals alone.
            return (filled == out.len()).then_some(());
        }
        let offset = block.get(read..)?.first_chunk::<2>()?;
        let offset = usize::from(u16::from_le_bytes(*offset));
        read += 2;
        let len = length(token & LONG, block, &mut read)?.checked_add(MATCH)?;
        if offset == 0 || offset > filled || len > out.len() - filled {
            return None;
        }
        copy_match(out, filled, offset, len);
        filled += len;
    }
}

/// A length that begins with these four bits of the token.
#[inline]
fn length(bits: usize, block: &[u8], read: &mut usize) -> Option<usize> {
    let mut len = bits;
    if bits == LONG {
        loop {
            let more = *block.get(*read)?;
            *read += 1;
            len = len.checked_add(usize::from(more))?;
            if more != u8::MAX {
                break;
            }
        }
    }
    Some(len)
}

/// Copies the first `len` bytes of `from` to `out`, from `at` on.
#[inline]
fn copy_literals(from: &[u8], len: usize, out: &mut [u8], at: usize) -> Option<()> {
    let to = out.get_mut(at..)?;
    if len <= WIDE
        && let (Some(to), Some(from)) = (to.first_chunk_mut::<WIDE>(), from.first_chunk::<WIDE>())
    {
        // The bytes behind the literals are overwritten by what follows.
        *to = *from;
        return Some(());
    }
    to.get_mut(..len)?.copy_from_slice(from.get(..len)?);
    Some(())
}

/// Repeats the bytes that are `offset` before `at`, until `len` bytes are written: `1 <= offset <= at` and `len <= out.len() - at`.
#[inline]
fn copy_match(out: &mut [u8], at: usize, offset: usize, len: usize) {
    let from = at - offset;
    if offset >= WIDE && len <= WIDE && out.len() - at >= WIDE {
        let (before, to) = out.split_at_mut(at);
        if let (Some(to), Some(from)) = (to.first_chunk_mut::<WIDE>(), before[from..].first_chunk::<WIDE>()) {
            *to = *from;
        }
        return;
    }
    if offset >= len {
        return out.copy_within(from..from + len, at);
    }
    if let Some(pattern) = pattern(&out[from..at])
        && out.len() - at >= len.next_multiple_of(size_of::<u64>())
    {
        let words = out[at..at + len.next_multiple_of(size_of::<u64>())].as_chunks_mut().0;
        return words.fill(pattern);
    }
    if len <= FEW {
        return (at..at + len).for_each(|to| out[to] = out[to - offset]);
    }
    // What was written is a multiple of `offset`, so it is followed by its own beginning.
    let mut written = 0;
    while written < len {
        let next = (offset + written).min(len - written);
        out.copy_within(from..from + next, at + written);
        written += next;
    }
}

/// Eight bytes that repeat these, if they are 1, 2, 4 or 8.
#[inline]
fn pattern(bytes: &[u8]) -> Option<[u8; 8]> {
    match *bytes {
        [a] => Some([a; 8]),
        [a, b] => Some([a, b, a, b, a, b, a, b]),
        [a, b, c, d] => Some([a, b, c, d, a, b, c, d]),
        _ => bytes.try_into().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::simulation::chance::Chance;

    /// Literals and matches of every length and distance.
    fn mixed(chance: &mut Chance, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let most = chance.pick(&[1, 8, 40, 600]);
            let own = 1 + chance.below(most);
            if bytes.is_empty() || chance.below(3) == 0 {
                (0..own).for_each(|_| bytes.push(chance.below(256) as u8));
            } else {
                let most = bytes.len().min(chance.pick(&[4, 8, 20, 60_000]));
                let offset = 1 + chance.below(most);
                (0..own).for_each(|_| bytes.push(bytes[bytes.len() - offset]));
            }
        }
        bytes.truncate(len);
        bytes
    }

    #[test]
    fn what_lz4_flex_has_compressed_comes_back_and_only_in_its_length() {
        let mut chance = Chance::new(7);
        for len in (0..200).chain([1000, 8192, 8193, 65_536]) {
            for _ in 0..20 {
                let bytes = mixed(&mut chance, len);
                let block = lz4_flex::block::compress(&bytes);
                let mut out = vec![9; len];
                assert_eq!(decompress(&block, &mut out), Some(()), "{len} bytes");
                assert!(out == bytes, "{len} bytes");
                assert_eq!(decompress(&block, &mut vec![0; len + 1]), None);
                assert_eq!(len.checked_sub(1).and_then(|less| decompress(&block, &mut vec![0; less])), None);
            }
        }
    }

    #[test]
    fn repetitions_of_every_distance_and_length_are_written() {
        for offset in 1..70 {
            for len in (MATCH..300).chain([5000]) {
                // As many literals, a match, and five literals, as the format wants them at the end.
                let first: Vec<u8> = (0..offset as u8).map(|byte| byte.wrapping_mul(37)).collect();
                let expected: Vec<u8> =
                    first.iter().copied().cycle().take(offset + len).chain([1; 5]).collect();
                let mut block = lz4_flex::block::compress(&expected);
                let mut out = vec![9; expected.len()];
                assert_eq!(decompress(&block, &mut out), Some(()));
                assert!(out == expected, "{len} bytes of {offset}");
                // A longer match than there is room for.
                out.truncate(offset + 1);
                assert_eq!(decompress(&block, &mut out), None);
                block.truncate(block.len() - 5);
                assert_eq!(decompress(&block, &mut vec![0; expected.len()]), None);
            }
        }
    }

    #[test]
    fn malformed_blocks_are_refused_and_never_read_or_written_behind_their_ends() {
        let mut chance = Chance::new(8);
        let mut refused = 0;
        for round in 0..30_000 {
            let len = chance.below(400);
            let mut block = lz4_flex::block::compress(&mixed(&mut chance, len));
            for _ in 0..=chance.below(3) {
                let at = chance.below(block.len());
                match chance.below(3) {
                    0 => block[at] = chance.below(256) as u8,
                    1 => block.truncate(at + 1),
                    _ => block[at] = chance.pick(&[0, 0x0f, 0xf0, 0xff]),
                }
            }
            let (mut own, mut other) = (vec![0; len], vec![0; len]);
            let is_whole =
                lz4_flex::block::decompress_into(&block, &mut other).is_ok_and(|filled| filled == len);
            let found = decompress(&block, &mut own).is_some();
            assert!(found == is_whole && (!found || own == other), "round {round}: {block:?}");
            refused += usize::from(!found);
        }
        assert!(refused > 10_000, "{refused}");
    }
}
