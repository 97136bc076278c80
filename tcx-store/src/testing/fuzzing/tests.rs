//! Every decoder over the corpus, and over mutations of valid bytes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::{fs, panic};

use super::DECODERS;
use super::seeds::{Seed, seeds};

/// Mutations of each seed.
const MUTATIONS: usize = 2000;

fn corpus() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus"))
}

fn decoder(name: &str) -> fn(&[u8]) {
    DECODERS.iter().find(|(own, _)| *own == name).unwrap().1
}

/// Random numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, limit: usize) -> usize {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % limit.max(1) as u64) as usize
    }
}

/// Changes a few places, as damage would, and as an attacker who knows the format would.
fn mutate(bytes: &mut Vec<u8>, dice: &mut Dice) {
    for _ in 0..=dice.roll(4) {
        let at = dice.roll(bytes.len());
        let number =
            [0, 1, 255, 1 << 15, 1 << 31, (1 << 32) - 1, 1 << 62, u64::MAX >> 1, u64::MAX][dice.roll(9)];
        let width = [1, 2, 4, 8][dice.roll(4)];
        let piece = bytes[at..bytes.len().min(at + 1 + dice.roll(64))].to_vec();
        match dice.roll(6) {
            0 => bytes.truncate(at),
            1 => drop(bytes.splice(at..at, piece)),
            2 => drop(bytes.drain(at..at + piece.len())),
            3 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << dice.roll(8)),
            // Where numbers stand.
            4 => bytes.iter_mut().skip(at & !7).zip(number.to_le_bytes()).for_each(|(byte, new)| *byte = new),
            _ => bytes
                .iter_mut()
                .skip(at)
                .zip(&number.to_le_bytes()[..width])
                .for_each(|(byte, new)| *byte = *new),
        }
    }
}

/// Decodes, and prints the bytes where that panics: those of a store are different in every run.
fn decode(name: &str, bytes: &[u8]) {
    let decoded = panic::catch_unwind(|| decoder(name)(bytes));
    if let Err(panic) = decoded {
        eprintln!("the decoder `{name}` panics with these bytes: {bytes:?}");
        panic::resume_unwind(panic);
    }
}

#[test]
fn valid_bytes_and_mutations_of_them_are_decoded_or_refused() {
    let mut dice = Dice(0x5eed);
    for Seed { decoder: name, bytes, .. } in seeds() {
        decode(name, &bytes);
        for _ in 0..MUTATIONS {
            let mut mutated = bytes.clone();
            mutate(&mut mutated, &mut dice);
            decode(name, &mutated);
        }
    }
}

#[test]
fn every_decoder_takes_every_file_of_the_corpus() {
    let mut files = BTreeMap::new();
    for &(name, _) in DECODERS {
        let folder = fs::read_dir(corpus().join(name)).unwrap();
        let own: Vec<Vec<u8>> = folder.map(|file| fs::read(file.unwrap().path()).unwrap()).collect();
        assert!(!own.is_empty(), "the corpus of `{name}` is empty");
        files.insert(name, own);
    }
    for &(_, decode) in DECODERS {
        files.values().flatten().for_each(|bytes| decode(bytes));
    }
}

#[test]
#[ignore = "writes the valid files of the corpus: `cargo test -p tcx-store -- --ignored the_corpus_is_written`"]
fn the_corpus_is_written() {
    for Seed { decoder, name, bytes } in seeds() {
        let folder = corpus().join(decoder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(name), bytes).unwrap();
    }
}
