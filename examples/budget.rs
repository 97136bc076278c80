//! Shows: a cache with a limit of bytes: frozen when it is full, so that a part of each epoch is served.
//! Run: `cargo run --example budget`
//! Look at: the hits of the second epoch, the bytes on disk, and what was computed and not kept.

use tch::{Kind, Tensor};
use tcx::{Cache, D1, Extractor, Typed, WhenFull, cached_module};

const SAMPLES: i64 = 2000;

#[cached_module(id = "budget_features_v1", key = i64)]
struct Wide {}

impl Extractor for Wide {
    type Input = Tensor;
    type Output = Typed<f32, D1<256>>; // 1 KiB a sample

    fn forward(&self, x: &Tensor) -> tcx::Result<Self::Output> {
        Ok((x.f_unsqueeze(1)? * Tensor::arange(256, (Kind::Float, tch::Device::Cpu))).into())
    }
}

/// An epoch; a program of its own each time, say.
fn epoch(dir: &std::path::Path, number: usize) -> tcx::Result<u64> {
    let builder = Cache::builder().max_bytes(512 << 10, WhenFull::StopWriting);
    let cache = builder.open(dir)?;
    let wide = cache.module(Wide {})?;
    let ids: Vec<i64> = (0..SAMPLES).collect();
    for batch in ids.chunks(100) {
        let load = |ids: &mut dyn Iterator<Item = &i64>| {
            Tensor::from_slice(&ids.map(|id| *id as f32 / SAMPLES as f32).collect::<Vec<_>>())
        };
        // Whatever is kept, the run goes on with every row.
        let features = wide.fetch(batch, |missing| Ok(load(&mut missing.ids())))?;
        assert_eq!(features.size(), [batch.len() as i64, 256]);
        wide.flush()?;
    }
    let stats = wide.stats();
    println!(
        "epoch {number}: {} served, {} computed, {} of these not kept; {} rows in {} KiB",
        stats.hits,
        stats.misses,
        stats.rows_dropped,
        stats.rows,
        stats.bytes >> 10
    );
    assert_eq!(stats.hits + stats.misses, SAMPLES as u64);
    assert_eq!(stats.rows_accepted + stats.rows_dropped, stats.misses);
    Ok(stats.hits)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Prints what tcx reports: damage, a full disk, lost rows, and a summary of each module at the end.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let dir = tempfile::tempdir()?;
    assert_eq!(epoch(dir.path(), 0)?, 0);
    let served = epoch(dir.path(), 1)?;
    assert!(served > 0, "what was kept is found in each epoch");
    assert!(epoch(dir.path(), 2)? >= served);
    Ok(())
}
