//! The goals of the figures.

/// A lower or an upper bound.
#[derive(Clone, Copy)]
pub(crate) enum Reach {
    AtLeast(f64),
    AtMost(f64),
}

impl Reach {
    pub(crate) fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(floor) => value >= floor,
            Self::AtMost(ceiling) => value <= ceiling,
        }
    }
}

impl std::fmt::Display for Reach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtLeast(floor) => write!(f, "≥ {floor}"),
            Self::AtMost(ceiling) => write!(f, "≤ {ceiling}"),
        }
    }
}

/// The goal of a figure, if it has one.
pub(crate) fn of(figure: &str) -> Option<Reach> {
    use Reach::{AtLeast, AtMost};
    if let Some(figure) = figure.strip_prefix("python.") {
        return of_the_package(figure);
    }
    Some(match figure {
        "w1.random_read.vs_raw_gather"
        | "w1.cold_read.fetch.vs_64_preads"
        | "w2.cold_read.fetch.vs_64_preads"
        | "w3.cold_read.fetch.vs_64_preads"
        | "w4.cold_read.fetch.vs_64_preads" => AtLeast(0.9),
        "w1.random_read.two_threads.vs_raw_gather" => AtLeast(1.6),
        "w2.random_read.vs_raw_gather" => AtLeast(0.5),
        "w2.random_read.vs_memmap_hash_map" => AtLeast(2.5),
        "w1.random_read.vs_lmdb" => AtLeast(2.),
        "w2.random_read.vs_lmdb" | "w1.random_read.vs_lance" => AtLeast(5.),
        "w2.random_read.vs_lance" => AtLeast(10.),
        "w3.random_read.vs_raw_gather" | "w1.fill.vs_raw_write_fsync" => AtLeast(0.8),
        "w1.fill.caller_ms_vs_memcpy" => AtMost(1.5),
        "w1.warm_batch.beside_idle_fill.p999_vs_p50" => AtMost(3.),
        "e2e.first_epoch_overhead" => AtMost(1.03),
        "cli.ls_10m_ms" => AtMost(50.),
        "cli.verify.vs_cat" => AtLeast(0.7),
        "e2e.second_epoch_speedup" => AtLeast(40.),
        "w1.lz4.random_read.vs_uncompressed" => AtLeast(0.2),
        "w1.zstd.random_read.vs_uncompressed" => AtLeast(0.1),
        "w1.lz4.random_read.hot.vs_uncompressed" | "w1.zstd.random_read.hot.vs_uncompressed" => AtLeast(0.6),
        "w2.open.rss_mib" => AtMost(4.),
        _ => return None,
    })
}

/// The goal of a figure of the Python package.
fn of_the_package(figure: &str) -> Option<Reach> {
    use Reach::{AtLeast, AtMost};
    Some(match figure {
        // Two workers can be no faster than those that read a plain array: most of their time, tensors are sent.
        "fetch.vs_rust" | "loader.one_worker.vs_mapped" | "loader.two_workers.vs_mapped" => AtLeast(0.9),
        "fetch.vs_datasets" => AtLeast(8.),
        "fetch.vs_safetensors" => AtLeast(3.),
        "fetch.vs_torchcache" | "fetch.vs_torch_module_cache" => AtLeast(5.),
        "first_epoch_overhead" => AtMost(1.05),
        "second_epoch_speedup" => AtLeast(40.),
        _ => return None,
    })
}
