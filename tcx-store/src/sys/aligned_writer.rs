//! Writing a file in large pieces, each at a multiple of its size.

use std::io::{self, Write};

/// The size of a huge page. What is written as one piece, some file systems keep as one huge page: a reader that maps the file
/// then reads it with far fewer misses of the processor's address translation.
const PIECE: usize = 2 << 20;

/// Gathers what is written into pieces; one that comes whole is not copied.
pub(crate) struct LargeWrites<W> {
    out: W,
    gathered: Vec<u8>,
    written: usize,
}

impl<W: Write> LargeWrites<W> {
    /// Writes a file from its start.
    pub(crate) fn new(out: W) -> Self {
        Self { out, gathered: Vec::new(), written: 0 }
    }

    /// Bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.written + self.gathered.len()
    }

    pub(crate) fn put(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let (piece, rest) = bytes.split_at(bytes.len().min(PIECE - self.gathered.len()));
            if piece.len() == PIECE {
                self.out.write_all(piece)?;
                self.written += PIECE;
            } else {
                self.gathered.extend_from_slice(piece);
                self.write_gathered_if(self.gathered.len() == PIECE)?;
            }
            bytes = rest;
        }
        Ok(())
    }

    fn write_gathered_if(&mut self, due: bool) -> io::Result<()> {
        if due {
            self.out.write_all(&self.gathered)?;
            self.written += self.gathered.len();
            self.gathered.clear();
        }
        Ok(())
    }

    /// Writes what is left, and gives back where to.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.write_gathered_if(!self.gathered.is_empty())?;
        Ok(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes where every write begins.
    #[derive(Default)]
    struct Noted {
        bytes: Vec<u8>,
        starts: Vec<usize>,
    }

    impl Write for Noted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.starts.push(self.bytes.len());
            self.bytes.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn whatever_comes_is_written_in_order_and_in_whole_pieces() {
        let bytes: Vec<u8> = (0..3 * PIECE + 999).map(|i| (i * 31 % 251) as u8).collect();
        for size in [1000, PIECE - 1, PIECE, PIECE + 1, bytes.len()] {
            let mut writes = LargeWrites::new(Noted::default());
            for part in bytes.chunks(size) {
                writes.put(part).unwrap();
            }
            assert_eq!(writes.len(), bytes.len());
            let noted = writes.finish().unwrap();
            assert!(noted.bytes == bytes, "the bytes in another order");
            assert_eq!(noted.starts, [0, PIECE, 2 * PIECE, 3 * PIECE]);
        }
    }
}
