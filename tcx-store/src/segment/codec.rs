//! The codecs of compressed buffers, as Arrow IPC knows them.

use std::cell::RefCell;
use std::io::{self, Read, Write};

use arrow_ipc::CompressionType;
use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};
use zstd::bulk::{Compressor, Decompressor};

use super::lz4;
use crate::options::Compression;

/// Fast enough for a writer in the background; higher levels gain little on features.
const ZSTD_LEVEL: i32 = 3;
/// The most bytes of a chunk before it is compressed: a block of an LZ4 frame has no more.
pub(super) const MOST_CHUNK: usize = 64 << 10;
/// Bytes of an LZ4 frame before its first block: the magic number and the descriptor, without optional fields.
const LZ4_HEADER: usize = 7;
/// Bytes of the size before each block of an LZ4 frame.
const LZ4_SIZE: usize = size_of::<u32>();
/// In that size: the block is not compressed.
const LZ4_RAW: u32 = 1 << 31;

thread_local! {
    /// Making a decompressor takes longer than decompressing a chunk.
    static ZSTD: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// How the buffers of a segment's leaves are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    Lz4,
    Zstd,
}

impl Codec {
    pub(super) const ALL: [Self; 2] = [Self::Lz4, Self::Zstd];

    /// The codec of this setting of a writer.
    pub(super) fn of(compression: Compression) -> Option<Self> {
        match compression {
            Compression::None => None,
            Compression::Lz4 => Some(Self::Lz4),
            Compression::Zstd => Some(Self::Zstd),
        }
    }

    /// The name in a segment's footer.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    pub(super) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.name() == name)
    }

    /// The name in the headers of record batches.
    pub(super) fn arrow(self) -> CompressionType {
        match self {
            Self::Lz4 => CompressionType::LZ4_FRAME,
            Self::Zstd => CompressionType::ZSTD,
        }
    }

    pub(super) fn compress(self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Self::Lz4 => {
                let mut encoder = FrameEncoder::new(Vec::new());
                encoder.write_all(bytes)?;
                encoder.finish().map_err(io::Error::other)
            }
            Self::Zstd => zstd::bulk::compress(bytes, ZSTD_LEVEL),
        }
    }

    /// Compresses every `chunk` bytes by themselves, at most [`MOST_CHUNK`]. Returns what a reader decompresses as a whole, too,
    /// and how many bytes of it each chunk takes: the first begins at [`first_chunk`](Self::first_chunk).
    pub(super) fn compress_chunks(self, bytes: &[u8], chunk: usize) -> io::Result<(Vec<u8>, Vec<usize>)> {
        let mut lens = Vec::with_capacity(bytes.len().div_ceil(chunk));
        match self {
            Self::Lz4 => {
                // One frame: each chunk is a block that refers to no other.
                let info = FrameInfo::new().block_size(BlockSize::Max64KB).block_mode(BlockMode::Independent);
                let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
                let mut end = LZ4_HEADER;
                for chunk in bytes.chunks(chunk) {
                    encoder.write_all(chunk)?;
                    encoder.flush()?;
                    lens.push(encoder.get_ref().len() - end);
                    end = encoder.get_ref().len();
                }
                Ok((encoder.finish().map_err(io::Error::other)?, lens))
            }
            Self::Zstd => {
                // Frames, one after the other.
                let (mut compressor, mut out) = (Compressor::new(ZSTD_LEVEL)?, Vec::new());
                for chunk in bytes.chunks(chunk) {
                    let packed = compressor.compress(chunk)?;
                    lens.push(packed.len());
                    out.extend_from_slice(&packed);
                }
                Ok((out, lens))
            }
        }
    }

    /// Where the first chunk begins in what [`compress_chunks`](Self::compress_chunks) returns.
    pub(super) fn first_chunk(self) -> usize {
        match self {
            Self::Lz4 => LZ4_HEADER,
            Self::Zstd => 0,
        }
    }

    /// Fills `out` with what `packed` holds; `None` if that is not just as much, or nothing that this codec has written.
    pub(super) fn decompress(self, packed: &[u8], out: &mut [u8]) -> Option<()> {
        match self {
            Self::Lz4 => {
                let mut decoder = FrameDecoder::new(packed);
                decoder.read_exact(out).ok()?;
                (decoder.read(&mut [0]).ok()? == 0).then_some(())
            }
            Self::Zstd => decompress_zstd(packed, out),
        }
    }

    /// As [`decompress`](Self::decompress), of one chunk.
    pub(super) fn decompress_chunk(self, packed: &[u8], out: &mut [u8]) -> Option<()> {
        match self {
            Self::Lz4 => {
                let (size, block) = packed.split_first_chunk::<LZ4_SIZE>()?;
                let size = u32::from_le_bytes(*size);
                if usize::try_from(size & !LZ4_RAW).ok()? != block.len() {
                    return None;
                }
                if size & LZ4_RAW != 0 {
                    return (block.len() == out.len()).then(|| out.copy_from_slice(block));
                }
                lz4::decompress(block, out)
            }
            Self::Zstd => decompress_zstd(packed, out),
        }
    }
}

fn decompress_zstd(packed: &[u8], out: &mut [u8]) -> Option<()> {
    let len = out.len();
    let with_kept = ZSTD.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        let kept = match &mut *kept {
            Some(kept) => kept,
            none => none.insert(Decompressor::new().ok()?),
        };
        kept.decompress_to_buffer(packed, out).ok()
    });
    // A thread that ends has none.
    let filled = match with_kept {
        Ok(filled) => filled?,
        Err(_) => zstd::bulk::decompress_to_buffer(packed, out).ok()?,
    };
    (filled == len).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that no codec can compress.
    fn noise(len: u32) -> Vec<u8> {
        (0..len).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8 ^ (i >> 5) as u8).collect()
    }

    #[test]
    fn what_was_compressed_comes_back_and_only_in_its_length() {
        let bytes: Vec<u8> = (0..200_000_usize).map(|i| (i / 100 % 7) as u8).collect();
        for codec in Codec::ALL {
            for len in [0, 1, 7, 65_536, 200_000] {
                let packed = codec.compress(&bytes[..len]).unwrap();
                let mut out = vec![9; len];
                assert_eq!(codec.decompress(&packed, &mut out), Some(()));
                assert!(out == bytes[..len], "{codec:?} of {len} bytes");
                assert_eq!(codec.decompress(&packed, &mut vec![0; len + 1]), None);
                if let Some(less) = len.checked_sub(1) {
                    assert_eq!(codec.decompress(&packed, &mut vec![0; less]), None);
                }
            }
        }
    }

    #[test]
    fn chunks_are_decompressed_one_by_one_and_together() {
        let mut bytes: Vec<u8> = (0..100_000_usize).map(|i| (i / 100 % 7) as u8).collect();
        // Chunks that cannot be compressed, between others.
        bytes[20_000..50_000].copy_from_slice(&noise(30_000));
        for codec in Codec::ALL {
            for chunk in [1, 10, 4096, 8192, 65_535, MOST_CHUNK] {
                let bytes = &bytes[..bytes.len().min(3000 * chunk)];
                let (packed, lens) = codec.compress_chunks(bytes, chunk).unwrap();
                let mut out = vec![9; bytes.len()];
                assert_eq!(codec.decompress(&packed, &mut out), Some(()));
                assert!(out == bytes, "{codec:?} in chunks of {chunk} bytes");
                let mut end = codec.first_chunk();
                for (expected, len) in bytes.chunks(chunk).zip(&lens) {
                    let stored = &packed[end..end + len];
                    let mut out = vec![9; expected.len()];
                    assert_eq!(codec.decompress_chunk(stored, &mut out), Some(()));
                    assert!(out == expected, "{codec:?} in chunks of {chunk} bytes");
                    assert_eq!(codec.decompress_chunk(stored, &mut vec![0; out.len() + 1]), None);
                    assert_eq!(codec.decompress_chunk(stored, &mut vec![0; out.len() - 1]), None);
                    assert_eq!(codec.decompress_chunk(&stored[..len - 1], &mut out), None);
                    end += len;
                }
                assert_eq!(lens.len(), bytes.len().div_ceil(chunk));
                assert!(packed.len() - end <= 4, "only a mark follows the last chunk");
            }
        }
    }

    #[test]
    fn bytes_that_no_codec_has_written_are_refused() {
        let noise: Vec<u8> = (0..5000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for codec in Codec::ALL {
            let packed = codec.compress(&vec![3; 5000]).unwrap();
            for cut in 0..packed.len() {
                let mut out = vec![0; 5000];
                // Of LZ4 the mark of the end may be missing: it holds nothing.
                let is_whole = codec == Codec::Lz4 && cut + 4 >= packed.len();
                assert_eq!(codec.decompress(&packed[..cut], &mut out).is_some(), is_whole);
                assert!(!is_whole || out == [3; 5000]);
            }
            for len in [0, 1, 4, 15, 5000] {
                assert_eq!(codec.decompress(&noise[..len], &mut vec![0; 5000]), None);
                assert_eq!(codec.decompress_chunk(&noise[..len], &mut vec![0; 5000]), None);
            }
        }
    }
}
