//! Shows: features without libtorch: spectra of recordings, as arrays of ndarray.
//! Run: `cargo run -p tcx-library-examples --example ndarray`, which builds no libtorch
//! Look at: the second epoch loads no recording, and a search reads one column of the rows.

use std::f32::consts::TAU;

use ndarray::{Array1, Array2, Axis};
use tcx::{Cache, CacheableOutput, Cached, Extractor, Result, cached_module};

/// Numbers of a recording in each second.
const RATE: usize = 4000;
/// Numbers in each frame.
const WINDOW: usize = 256;
/// Bands of frequencies.
const BANDS: usize = 32;

#[derive(CacheableOutput)]
struct Spectra {
    #[tensor(f32, [_, BANDS], store = f16)]
    frames: Vec<Array2<f32>>, // one for each recording: [frames, BANDS]
    #[tensor(f32, [BANDS])]
    mean: Array2<f32>, // [N, BANDS]
}

/// What a search reads of it.
#[derive(CacheableOutput)]
struct Mean {
    #[tensor(f32, [BANDS])]
    mean: Array2<f32>,
}

#[cached_module(id = "spectra_v1")]
struct Spectrogram {
    window: Array1<f32>, // an array of constants is part of the identity
    step: usize,
}

impl Spectrogram {
    fn new(step: usize) -> Self {
        let hann = |at: usize| 0.5 - 0.5 * (TAU * at as f32 / WINDOW as f32).cos();
        Self { window: (0..WINDOW).map(hann).collect(), step }
    }

    /// The energy of each band in each frame, in decibels.
    fn frames(&self, recording: &[f32]) -> Array2<f32> {
        let starts: Vec<usize> = (0..=recording.len().saturating_sub(WINDOW)).step_by(self.step).collect();
        let frames = Array2::from_shape_fn((starts.len(), WINDOW), |(frame, at)| {
            recording.get(starts[frame] + at).copied().unwrap_or(0.) * self.window[at]
        });
        let wave = |turn: fn(f32) -> f32| {
            Array2::from_shape_fn((WINDOW, BANDS), |(at, band)| {
                turn(TAU * (band * WINDOW / 2 / BANDS * at) as f32 / WINDOW as f32)
            })
        };
        let (even, odd) = (frames.dot(&wave(f32::cos)), frames.dot(&wave(f32::sin)));
        let power = &even * &even + &odd * &odd;
        power.mapv(|power| 10. * (power + 1e-6).log10())
    }
}

impl Extractor for Spectrogram {
    type Input = Vec<Vec<f32>>; // recordings differ in length
    type Output = Spectra;

    fn forward(&self, recordings: &Vec<Vec<f32>>) -> Result<Spectra> {
        let frames: Vec<_> = recordings.iter().map(|recording| self.frames(recording)).collect();
        let mut mean = Array2::zeros((frames.len(), BANDS));
        for (mut mean, frames) in mean.rows_mut().into_iter().zip(&frames) {
            mean.assign(&(frames.sum_axis(Axis(0)) / frames.nrows() as f32));
        }
        Ok(Spectra { frames, mean })
    }
}

/// In place of reading and decoding a file: a tone that rises with its number, and lasts longer.
fn record(name: &str) -> Result<Vec<f32>> {
    let number: usize = name.trim_start_matches("tone").parse().map_err(tcx::Error::loader)?;
    let pitch = (number * RATE / 2 / BANDS) as f32;
    let numbers = (0..RATE / 4 + number * 100).map(|at| (TAU * pitch * at as f32 / RATE as f32).sin());
    Ok(numbers.collect())
}

/// One pass over the recordings, and how many of them it has loaded.
fn epoch(spectra: &Cached<Spectrogram>, names: &[String]) -> Result<(Spectra, usize)> {
    let mut loaded = 0;
    let found = spectra.fetch(names, |missing| {
        loaded = missing.ids().count();
        missing.ids().map(|name| record(name)).collect()
    })?;
    Ok((found, loaded))
}

/// The band with the most energy.
fn loudest<'a>(bands: impl IntoIterator<Item = &'a f32>) -> Option<usize> {
    let louder = |a: &(usize, &f32), b: &(usize, &f32)| a.1.total_cmp(b.1);
    bands.into_iter().enumerate().max_by(louder).map(|(band, _)| band)
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    // Prints what tcx reports: damage, a full disk, lost rows, and a summary of each module at the end.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let dir = tempfile::tempdir()?;
    let names: Vec<String> = (3..27).map(|number| format!("tone{number}")).collect();
    let spectra = Cache::open(dir.path())?.module(Spectrogram::new(WINDOW / 2))?;
    let (computed, loaded) = epoch(&spectra, &names)?;
    println!("first epoch: {loaded} recordings loaded, {} frames of the first", computed.frames[0].nrows());
    spectra.flush()?; // durable when this returns
    drop(spectra);

    // Another program, later.
    let spectra = Cache::open(dir.path())?.module(Spectrogram::new(WINDOW / 2))?;
    let (found, loaded) = epoch(&spectra, &names)?;
    println!("second epoch: {loaded} recordings loaded");
    assert_eq!((loaded, found.mean == computed.mean), (0, true));

    // Of these rows, only the mean spectra are read.
    let found = spectra.fields::<Mean>()?.fetch(&names, |_| Err(tcx::Error::loader("nothing is missing")))?;
    for (number, mean) in (3..27).zip(found.mean.rows()) {
        assert_eq!(loudest(mean), Some(number), "the tone is in its band");
    }
    Ok(())
}
