//! Random choices of samples: another sequence in each handle, so that no sample is always chosen or never.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A sequence of random numbers (`SplitMix64`), which need not be secret.
#[derive(Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    /// Begins somewhere else each time: the standard library's hash maps are seeded from the system's randomness.
    pub(crate) fn new() -> Self {
        Self(RandomState::new().build_hasher().finish())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Whether something of this probability happens: never at 0, always at 1.
    pub(crate) fn happens(&mut self, probability: f64) -> bool {
        // 53 bits are what an `f64` below 1 holds exactly.
        let part = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        part < probability
    }

    /// A number below `limit`, which is not 0; each is as likely as the others, but for 2⁻⁶⁴ × `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.next()) * limit as u128) >> 64) as usize
    }

    /// `count` of the numbers below `limit`, at most all of them, in random order.
    pub(crate) fn some(&mut self, count: usize, limit: usize) -> Vec<usize> {
        let mut numbers: Vec<usize> = (0..limit).collect();
        let count = count.min(limit);
        for place in 0..count {
            let other = place + self.below(limit - place);
            numbers.swap(place, other);
        }
        numbers.truncate(count);
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_chosen_as_often_as_the_others_at_each_place() {
        let (mut chance, mut chosen) = (Chance(7), [[0_u32; 10]; 3]);
        for _ in 0..10_000 {
            let some = chance.some(3, 10);
            for (place, &number) in some.iter().enumerate() {
                chosen[place][number] += 1;
            }
            assert!(some[0] != some[1] && some[1] != some[2] && some[0] != some[2]);
        }
        // A thousand each; five standard deviations are 150.
        assert!(chosen.as_flattened().iter().all(|count| (850..1150).contains(count)), "{chosen:?}");
        let mut all = chance.some(9, 4);
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3]);
    }

    #[test]
    fn what_happens_is_as_likely_as_asked() {
        let mut chance = Chance(7);
        assert!((0..1000).all(|_| chance.happens(1.) && !chance.happens(0.)));
        let happened = (0..100_000).filter(|_| chance.happens(0.01)).count();
        // A thousand; five standard deviations are 157.
        assert!((843..1157).contains(&happened), "{happened}");
    }

    #[test]
    fn two_sequences_differ() {
        assert_ne!(Chance::new().next(), Chance::new().next());
    }
}
