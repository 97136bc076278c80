//! What is kept, what goes first, and what goes when memory is short.

use std::cell::Cell as Slot;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, LazyLock};
use std::time::{Duration, Instant};

use super::*;
use crate::sys::bytes::Random;

/// A cache that does not depend on how much memory this machine has.
fn cache(limit: usize, policy: MemoryCachePolicy) -> MemoryCache {
    MemoryCache::with_pressure(limit, policy, Pressure::new(limit, Box::new(|| None)))
}

fn lru(limit: usize) -> MemoryCache {
    cache(limit, MemoryCachePolicy::Lru)
}

fn key(number: usize) -> CacheKey {
    let segment = SegmentName { random: Random([7; 16]), tail: 7 };
    CacheKey { segment, part: Part::Block(number) }
}

#[test]
fn what_was_not_used_for_the_longest_time_goes_first() {
    let memory_cache = lru(3 * (1000 + ENTRY));
    let get = |number| {
        let mut is_new = false;
        let loads = Slot::new(false);
        let kept = memory_cache.get(key(number), || {
            loads.set(true);
            Some(CachedPart::Block(vec![number as u8; 1000]))
        });
        is_new |= loads.get();
        assert_eq!(kept.unwrap().block().unwrap()[0], number as u8);
        assert!(memory_cache.bytes() <= 3 * (1000 + ENTRY));
        is_new
    };
    assert!(get(1) && get(2) && get(3));
    assert!(!get(1) && !get(2) && !get(3) && !get(1));
    assert!(get(4));
    assert!(!get(1) && !get(3) && !get(4));
    assert!(get(2));
}

#[test]
fn what_is_too_large_and_what_cannot_be_loaded_is_not_kept() {
    let memory_cache = lru(5000);
    assert!(memory_cache.get(key(1), || Some(CachedPart::Block(vec![0; 5000]))).is_some());
    assert!(memory_cache.get(key(2), || None).is_none());
    assert_eq!((memory_cache.bytes(), memory_cache.kept().parts.len()), (0, 0));
    assert!(memory_cache.get(key(2), || Some(CachedPart::Block(vec![0; 10]))).is_some());
    assert_eq!(memory_cache.bytes(), 10 + ENTRY);
}

#[test]
fn of_many_threads_that_want_the_same_one_loads_it() {
    let (memory_cache, loads, start) = (lru(1 << 20), AtomicUsize::new(0), Barrier::new(8));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                start.wait();
                let kept = memory_cache.get(key(1), || {
                    loads.fetch_add(1, Ordering::SeqCst);
                    Some(CachedPart::Block(vec![5; 100]))
                });
                assert_eq!(kept.unwrap().block(), Some(&[5; 100][..]));
            });
        }
    });
    assert_eq!(loads.load(Ordering::SeqCst), 1);
}

/// The size of a part in the tests of hit rates.
const PART: usize = 1000 + ENTRY;

/// A cache with room for this number of parts.
fn room_for(parts: usize, policy: MemoryCachePolicy) -> MemoryCache {
    cache(parts * PART, policy)
}

/// Wants these parts, one after the other; returns the share that was there.
fn hit_rate(memory_cache: &MemoryCache, wanted: impl IntoIterator<Item = usize>) -> f64 {
    let before = memory_cache.counts();
    for number in wanted {
        memory_cache.get(key(number), || Some(CachedPart::Block(vec![0; 1000])));
        assert!(memory_cache.bytes() <= memory_cache.limit);
    }
    let after = memory_cache.counts();
    let (hits, misses) = (after.hits - before.hits, after.misses - before.misses);
    hits as f64 / (hits + misses) as f64
}

fn percent(rate: f64) -> u32 {
    (rate * 100.).round() as u32
}

/// The same numbers in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn shuffled(&mut self, parts: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..parts).collect();
        (1..parts).for_each(|at| order.swap(at, (self.roll() * (at + 1) as f64) as usize));
        order
    }

    /// The number `n` comes with a probability of about 1 / (n + 1).
    fn zipf(&mut self, parts: usize) -> usize {
        (((parts + 1) as f64).powf(self.roll()) as usize - 1).min(parts - 1)
    }
}

/// The hit rates of the last three of five epochs of 1,000 parts in a cache of `room`.
fn epochs(room: usize, policy: MemoryCachePolicy, epoch: impl Fn(&mut Dice) -> Vec<usize>) -> f64 {
    let (memory_cache, mut dice) = (room_for(room, policy), Dice(7));
    for _ in 0..2 {
        hit_rate(&memory_cache, epoch(&mut dice));
    }
    (0..3).map(|_| hit_rate(&memory_cache, epoch(&mut dice))).sum::<f64>() / 3.
}

#[test]
fn hit_rates_do_not_fall_below_their_floors() {
    let sequential = |_: &mut Dice| (0..1000).collect();
    let shuffled = |dice: &mut Dice| dice.shuffled(1000);
    let zipf = |dice: &mut Dice| (0..1000).map(|_| dice.zipf(1000)).collect();
    let rates = |policy, room| {
        [epochs(room, policy, sequential), epochs(room, policy, shuffled), epochs(room, policy, zipf)]
            .map(percent)
    };
    let (lru, resistant) = (MemoryCachePolicy::Lru, MemoryCachePolicy::ScanResistant);
    let found = [rates(lru, 250), rates(resistant, 250), rates(lru, 500), rates(resistant, 500)];
    // Sequential, shuffled, Zipf; with room for a fourth of the epoch, and for half.
    let floors = [[0, 2, 68], [19, 16, 72], [0, 15, 83], [39, 38, 84]];
    let is_met = found
        .iter()
        .zip(&floors)
        .all(|(found, floors)| found.iter().zip(floors).all(|(own, floor)| own >= floor));
    assert!(is_met, "{found:?} percent, expected at least {floors:?}");
    assert_eq!((found[0][0], found[2][0]), (0, 0), "the least recently used part is always the next one");
}

#[test]
fn an_epoch_that_is_larger_than_the_cache_does_not_displace_what_is_hot() {
    for (policy, kept) in [(MemoryCachePolicy::ScanResistant, 100), (MemoryCachePolicy::Lru, 0)] {
        let memory_cache = room_for(100, policy);
        let hot = || 0..60;
        hit_rate(&memory_cache, hot());
        hit_rate(&memory_cache, hot());
        // Each part several times in a row, as by small batches of neighbouring rows.
        hit_rate(&memory_cache, (1000..2000).flat_map(|part| [part; 5]));
        assert_eq!(percent(hit_rate(&memory_cache, hot())), kept, "{policy:?}");
    }
}

#[test]
fn what_is_not_wanted_any_more_makes_way_for_what_is() {
    let memory_cache = room_for(100, MemoryCachePolicy::ScanResistant);
    for _ in 0..10 {
        hit_rate(&memory_cache, 0..100);
    }
    assert_eq!(percent(hit_rate(&memory_cache, 0..100)), 100);
    // Another data set, which fits as well: its epochs are longer than the probation.
    let rates: Vec<f64> = (0..16).map(|_| hit_rate(&memory_cache, 1000..1095)).collect();
    assert!(rates[15] > 0.95, "{rates:?}");
}

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

thread_local! {
    static PASSED: Slot<Duration> = const { Slot::new(Duration::ZERO) };
    static READINGS: Slot<usize> = const { Slot::new(0) };
    static AVAILABLE: Slot<Option<usize>> = const { Slot::new(None) };
}

fn now() -> Instant {
    *START + PASSED.get()
}

#[test]
fn parts_go_when_memory_is_short_and_come_back_when_it_is_not() {
    let limit = 100 * PART;
    let available = || {
        READINGS.set(READINGS.get() + 1);
        AVAILABLE.get()
    };
    let pressure = Pressure::with_clock(limit, Box::new(available), now);
    let memory_cache = MemoryCache::with_pressure(limit, MemoryCachePolicy::Lru, pressure);
    let memory = crate::sys::memory::memory();
    AVAILABLE.set(Some(memory / 2));
    hit_rate(&memory_cache, 0..100);
    assert_eq!(
        (memory_cache.bytes(), memory_cache.shrinks(), READINGS.get()),
        (limit, 0, 1),
        "once a second"
    );
    AVAILABLE.set(Some(memory / 40));
    hit_rate(&memory_cache, 100..110);
    assert_eq!((memory_cache.bytes(), READINGS.get()), (limit, 1), "no second has passed");
    PASSED.set(Duration::from_secs(1));
    hit_rate(&memory_cache, 100..110);
    assert_eq!(READINGS.get(), 1, "nothing was loaded");
    hit_rate(&memory_cache, [200]);
    assert_eq!((memory_cache.limit(), memory_cache.bytes()), (limit / 2, limit / 2));
    PASSED.set(Duration::from_secs(2));
    AVAILABLE.set(Some(memory / 200));
    hit_rate(&memory_cache, [201]);
    assert_eq!((memory_cache.limit(), memory_cache.bytes(), memory_cache.shrinks()), (0, 0, 2));
    assert_eq!(percent(hit_rate(&memory_cache, [202, 202])), 0, "it keeps nothing");
    AVAILABLE.set(None);
    for second in 3..8 {
        PASSED.set(Duration::from_secs(second));
        hit_rate(&memory_cache, second as usize * 100..second as usize * 100 + 100);
        assert_eq!(memory_cache.limit(), (limit / 16) << (second - 3));
        assert!(memory_cache.bytes() > memory_cache.limit() - PART);
    }
    assert_eq!((memory_cache.limit(), memory_cache.shrinks(), READINGS.get()), (limit, 2, 8));
}
