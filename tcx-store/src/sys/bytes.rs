//! Reads little-endian numbers and strings from untrusted bytes, and writes them.

use super::runtime;

/// A position in untrusted bytes. Every step checks that the bytes are there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn random(&mut self) -> Option<Random> {
        self.array().map(Random)
    }

    pub(crate) fn string(&mut self) -> Option<String> {
        let len = self.u32()? as usize;
        std::str::from_utf8(self.take(len)?).ok().map(str::to_owned)
    }

    /// A count of things of at least `size` bytes each: more than the bytes can hold is no count.
    pub(crate) fn count(&mut self, size: usize) -> Option<usize> {
        let count = self.u32()? as usize;
        (count.checked_mul(size)? <= self.rest.len()).then_some(count)
    }

    /// What was not read yet.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }
}

pub(crate) fn put_string(out: &mut Vec<u8>, text: &str) {
    put_count(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

/// A count of things that are in memory.
pub(crate) fn put_count(out: &mut Vec<u8>, count: usize) {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    out.extend_from_slice(&count.to_le_bytes());
}

/// The little-endian number at `offset`, which the caller knows to be inside.
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    bytes.get(offset..)?.first_chunk().map(|chunk| u64::from_le_bytes(*chunk))
}

/// 128 random bits: what makes a name or a change its writer's own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Random(pub(crate) [u8; 16]);

impl Random {
    /// Bits of the operating system's generator.
    ///
    /// # Panics
    ///
    /// If the operating system has no random numbers to give; nothing that needs a unique name could go on.
    pub(crate) fn new() -> Self {
        Self(runtime::random())
    }

    pub(crate) fn parse(hex: &str) -> Option<Self> {
        let bytes = hex.as_bytes();
        if bytes.len() != 32 {
            return None;
        }
        let mut bits = [0; 16];
        for (bit, pair) in bits.iter_mut().zip(bytes.chunks_exact(2)) {
            *bit = hex_digit(pair[0])? << 4 | hex_digit(pair[1])?;
        }
        Some(Self(bits))
    }
}

impl std::fmt::Display for Random {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for Random {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// Only what our own writers print is accepted: lower case, so that one number has one name.
fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

/// Sixteen hex digits.
pub(crate) fn parse_hex64(hex: &str) -> Option<u64> {
    let bytes = hex.as_bytes();
    if bytes.len() != 16 {
        return None;
    }
    bytes.iter().try_fold(0, |number, &byte| Some(number << 4 | u64::from(hex_digit(byte)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_never_reads_past_the_end() {
        let mut cursor = Cursor::new(&[1, 0, 0, 0, 9]);
        assert_eq!(cursor.u32(), Some(1));
        assert_eq!(cursor.u64(), None);
        assert_eq!(cursor.u8(), Some(9));
        assert!(cursor.is_at_end());
        assert_eq!(Cursor::new(&[255, 255, 255, 255, b'x']).string(), None);
        assert_eq!(Cursor::new(&[255, 255, 255, 255, b'x']).count(1), None);
    }

    #[test]
    fn random_bits_have_one_name() {
        let random = Random::new();
        assert_eq!(Random::parse(&random.to_string()), Some(random));
        assert_eq!(Random::parse(&"AB".repeat(16)), None);
        assert_eq!(Random::parse("é"), None);
        assert_eq!(parse_hex64("00000000000000ff"), Some(255));
        assert_eq!(parse_hex64("+0000000000000ff"), None);
    }
}
