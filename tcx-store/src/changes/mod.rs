//! The numbered changes of a module: immutable records, created only where their number is free.

mod identity;
mod known;

pub(crate) use identity::{IdentityChange, now_millis};
pub(crate) use known::KnownChanges;

use crate::bytes::{Cursor, Random};
use crate::checksum::checksum;

const MAGIC: &[u8; 8] = b"TCXCHG01";
const VERSION: u32 = 1;
const HEADER: usize = 48;

/// The kinds of change that this version makes and understands.
const KIND_IDENTITY: u32 = 0;

/// Makes a change of its number, kind and payload.
fn encode(number: u64, kind: u32, nonce: Random, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + payload.len() + 8);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&kind.to_le_bytes());
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(&nonce.0);
    bytes.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    bytes.extend_from_slice(payload);
    let sum = checksum(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

/// The kind and payload of change `number`, or what is wrong with the bytes.
fn decode(number: u64, bytes: &[u8]) -> Result<(u32, &[u8]), String> {
    let (body, sum) = bytes.split_last_chunk::<8>().ok_or("it is shorter than any change")?;
    if checksum(body) != u64::from_le_bytes(*sum) {
        return Err("its checksum is wrong".to_owned());
    }
    let mut cursor = Cursor::new(body);
    let short = || "it is cut short".to_owned();
    if cursor.take(8).ok_or_else(short)? != MAGIC {
        return Err("it is no change of tcx".to_owned());
    }
    let version = cursor.u32().ok_or_else(short)?;
    if version != VERSION {
        return Err(format!("it has version {version}, this program knows {VERSION}"));
    }
    let kind = cursor.u32().ok_or_else(short)?;
    let own = cursor.u64().ok_or_else(short)?;
    if own != number {
        return Err(format!("it says that it is change {own}"));
    }
    cursor.random().ok_or_else(short)?;
    let len = cursor.u64().ok_or_else(short)?;
    let payload = cursor.take(usize::try_from(len).map_err(|_| short())?).ok_or_else(short)?;
    if cursor.is_at_end() { Ok((kind, payload)) } else { Err("bytes follow its payload".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_read_back_and_no_byte_of_it_can_change() {
        let bytes = encode(3, 1, Random::new(), b"payload");
        assert_eq!(decode(3, &bytes), Ok((1, &b"payload"[..])));
        decode(4, &bytes).unwrap_err();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            decode(3, &damaged).unwrap_err();
            decode(3, &bytes[..at]).unwrap_err();
        }
    }
}
