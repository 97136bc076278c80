//! The codecs of compressed buffers, as Arrow IPC knows them.

use std::io::{self, Read, Write};

use arrow_ipc::CompressionType;
use lz4_flex::frame::{FrameDecoder, FrameEncoder};

use crate::options::Compression;

/// Fast enough for a writer in the background; higher levels gain little on features.
const ZSTD_LEVEL: i32 = 3;

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

    /// Fills `out` with what `packed` holds; `None` if that is not just as much, or nothing that this codec has written.
    pub(super) fn decompress(self, packed: &[u8], out: &mut [u8]) -> Option<()> {
        match self {
            Self::Lz4 => {
                let mut decoder = FrameDecoder::new(packed);
                decoder.read_exact(out).ok()?;
                (decoder.read(&mut [0]).ok()? == 0).then_some(())
            }
            Self::Zstd => {
                let filled = zstd::bulk::decompress_to_buffer(packed, out).ok()?;
                (filled == out.len()).then_some(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            }
        }
    }
}
