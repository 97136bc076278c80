//! W3: 50,000 rows of 10 to 200 times 384 f16, the tokens of texts, read in shuffled batches as one packed tensor.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use half::f16;
use tch::Tensor;
use tcx::{Cache, CacheableOutput, Cached, Extractor, Ragged, cached_module};

use crate::data::rows::{Batches, map};
use crate::data::workload::{BATCH, ids, shuffled};
use crate::phases::cold::{Opened, Stored};
use crate::report::{Figures, ROUNDS};
use crate::{Result, Settings};

const NAME: &str = "w3";
const ROWS: usize = 50_000;
const WIDTH: usize = 384;
/// Bytes of a token.
const TOKEN: usize = WIDTH * 2;

/// The tokens of a batch of texts.
#[derive(CacheableOutput)]
struct Tokens {
    #[tensor(f16, [_, 384])]
    tokens: Ragged,
}

/// The inputs are the rows' numbers.
#[cached_module(id = "w3_v1")]
struct W3 {}

impl Extractor for W3 {
    type Input = Vec<i64>;
    type Output = Tokens;

    fn forward(&self, rows: &Vec<i64>) -> tcx::Result<Tokens> {
        let (mut values, mut offsets) = (Vec::new(), vec![0]);
        for &row in rows {
            values.extend(std::iter::repeat_n(number(row as usize), tokens(row as usize) * WIDTH));
            offsets.push((values.len() / WIDTH) as i64);
        }
        let values = Tensor::from_slice(&values).f_view([-1, WIDTH as i64])?;
        Ok(Tokens { tokens: Ragged { values, offsets: Tensor::from_slice(&offsets) } })
    }
}

/// The value of every element of a row; f16 represents integers up to 2048 exactly.
fn number(row: usize) -> f16 {
    f16::from_f32((row % 2048) as f32)
}

/// The number of tokens in a row.
fn tokens(row: usize) -> usize {
    10 + row * 7919 % 191
}

/// The offset of each row in the plain file, and the end of the last row.
fn places(rows: usize) -> Vec<usize> {
    let mut places = vec![0];
    for row in 0..rows {
        places.push(places[row] + tokens(row) * TOKEN);
    }
    places
}

/// Writes a cache and a plain file of the same rows.
pub(crate) fn fill(settings: &Settings, _: &mut Figures) -> Result<()> {
    let dir = settings.dir.join(NAME);
    std::fs::create_dir_all(&dir)?;
    let mut raw = std::io::BufWriter::with_capacity(1 << 20, std::fs::File::create(dir.join("raw"))?);
    let cache = Cache::open(dir.join("cache"))?;
    let cached = cache.module(W3 {})?;
    let rows = settings.rows(ROWS);
    for start in (0..rows).step_by(BATCH) {
        let numbers = start..rows.min(start + BATCH);
        cached.fetch(&ids(numbers.clone()), |missing| Ok(missing.ids().map(|id| parse(id)).collect()))?;
        for row in numbers {
            let bytes = number(row).to_le_bytes();
            raw.write_all(&bytes.repeat(tokens(row) * WIDTH))?;
        }
    }
    raw.flush()?;
    Ok(cache.close()?)
}

fn parse(id: &str) -> i64 {
    id.trim_start_matches("sample_").parse().unwrap_or(-1)
}

/// Reads shuffled batches from the disk.
pub(crate) fn cold(settings: &Settings, figures: &mut Figures) -> Result<()> {
    let (dir, rows) = (settings.dir.join(NAME), settings.rows(ROWS));
    let places = places(rows);
    let open = || -> Result<Opened> {
        let cached = Arc::new(Cache::open(dir.join("cache"))?.module(W3 {})?);
        let epoch = cached.clone();
        Ok(Opened {
            fetch: Box::new(move |rows, ids| {
                check(&fetch(&cached, ids)?, rows);
                Ok(())
            }),
            epoch: Box::new(move |batches| {
                let order = ids(batches.order.iter().copied());
                let epoch = epoch.epoch(&order).batch_size(BATCH).into_iter();
                epoch.zip(batches.order.chunks(BATCH)).try_for_each(|(batch, rows)| {
                    check(&batch?.1.tokens, rows);
                    Ok(())
                })
            }),
        })
    };
    Stored { name: NAME, dir: &dir, rows, place: &|row| places[row]..places[row + 1], open: &open }
        .measure(figures)
}

fn fetch(cached: &Cached<W3>, ids: &[String]) -> Result<Ragged> {
    Ok(cached.fetch(ids, |_| Err(tcx::Error::loader("a row is missing")))?.tokens)
}

fn check(found: &Ragged, rows: &[usize]) {
    let last = found.values.double_value(&[-1, 0]);
    assert_eq!(f16::from_f64(last), number(rows[rows.len() - 1]), "the right row");
}

/// Reads shuffled batches, compared with a loop that knows the offsets of the rows.
pub(crate) fn read(settings: &Settings, figures: &mut Figures) -> Result<()> {
    let (dir, rows) = (settings.dir.join(NAME), settings.rows(ROWS));
    let (raw, places) = (map(&dir.join("raw"))?, places(rows));
    let cached = Cache::open(dir.join("cache"))?.module(W3 {})?;
    let batches = Batches::new(shuffled(rows));
    let mut buffer = vec![0; BATCH * tokens_at_most() * TOKEN];
    let (mut gathers, mut reads) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let gather = gather(&raw, &places, &batches, &mut buffer);
        let read = ours(&cached, &batches)?;
        // The uncounted round before the first verifies every checksum.
        if round > 0 {
            gathers.push(gather);
            reads.push(read);
        }
    }
    figures.ratio(format!("{NAME}.random_read.vs_raw_gather"), &gathers, &reads);
    std::fs::remove_dir_all(dir)?;
    Ok(())
}

fn tokens_at_most() -> usize {
    10 + 190
}

fn gather(raw: &[u8], places: &[usize], batches: &Batches, buffer: &mut [u8]) -> Duration {
    let mut time = Duration::ZERO;
    for (rows, _) in batches.iter() {
        let start = Instant::now();
        let mut end = 0;
        for &row in rows {
            let bytes = &raw[places[row]..places[row + 1]];
            buffer[end..end + bytes.len()].copy_from_slice(bytes);
            end += bytes.len();
        }
        std::hint::black_box(&mut *buffer);
        time += start.elapsed();
    }
    time
}

fn ours(cached: &Cached<W3>, batches: &Batches) -> Result<Duration> {
    let mut time = Duration::ZERO;
    for (rows, ids) in batches.iter() {
        let start = Instant::now();
        let found = fetch(cached, ids)?;
        time += start.elapsed();
        check(&found, rows);
    }
    Ok(time)
}
