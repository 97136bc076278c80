//! Shows: four ranks of a distributed run as processes of one cache, started by torchrun or by Slurm; every rank persists.
//! Run: `cargo run --example ddp` starts the ranks itself; `torchrun --no-python --nproc-per-node 4 PROGRAM DIR` and
//! `srun -n 4 PROGRAM DIR` do as well.
//! Look at: no rank is special; in the second epoch, with other shards, no rank computes anything.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use tch::nn::{self, Module};
use tch::{Device, Tensor};
use tcx::{Cache, D1, Extractor, Frozen, Typed, cached_module};

const SAMPLES: i64 = 200;
const WORLD: usize = 4;

#[cached_module(id = "ddp_encoder_v1", key = i64)]
struct Encoder {
    net: Frozen<nn::Linear>,
}

impl Extractor for Encoder {
    type Input = Tensor;
    type Output = Typed<f32, D1<8>>;

    fn forward(&self, x: &Tensor) -> tcx::Result<Self::Output> {
        Ok(self.net.forward(x).into())
    }
}

/// This process's rank and how many there are, as torchrun (`RANK`) and Slurm (`SLURM_PROCID`) say.
fn rank() -> Option<(usize, usize)> {
    let number = |name: &str| std::env::var(name).ok()?.parse().ok();
    let torchrun = || Some((number("RANK")?, number("WORLD_SIZE")?));
    torchrun().or_else(|| Some((number("SLURM_PROCID")?, number("SLURM_NTASKS")?)))
}

/// One epoch of one rank: its shard moves on with the epoch, as a distributed sampler's does.
fn epoch(dir: &Path, (rank, world): (usize, usize), epoch: usize) -> tcx::Result<()> {
    tch::manual_seed(7); // every rank has the same weights
    let build = |p: &nn::Path<'_>| nn::linear(p, 4, 8, nn::LinearConfig::default());
    let net = Frozen::build(nn::VarStore::new(Device::Cpu), build)?;
    let cache = Cache::open(dir)?;
    let encoder = cache.module(Encoder { net })?;
    let ids: Vec<i64> = (0..SAMPLES).filter(|id| (*id as usize + epoch) % world == rank).collect();
    for batch in ids.chunks(10) {
        let features = encoder.fetch(batch, |missing| {
            let rows: Vec<f32> = missing.ids().flat_map(|id| [*id as f32; 4]).collect();
            Ok(Tensor::from_slice(&rows).f_view([-1, 4])?)
        })?;
        assert_eq!(features.size(), [batch.len() as i64, 8]);
    }
    cache.flush()?; // each rank its own rows; no barrier is needed for that
    println!("rank {rank} of {world}, epoch {epoch}: {} computed", encoder.stats().misses);
    Ok(())
}

/// Starts every rank of an epoch, with the environment that a launcher gives it, and returns what they said.
fn launch(dir: &Path, number: usize, names: [&str; 2]) -> Result<String, Box<dyn std::error::Error>> {
    let start = |rank: usize| -> std::io::Result<Child> {
        let mut process = Command::new(std::env::current_exe()?);
        process.args([dir.as_os_str(), number.to_string().as_ref()]).stdout(Stdio::piped());
        for name in ["RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"] {
            process.env_remove(name);
        }
        process.env(names[0], rank.to_string()).env(names[1], WORLD.to_string()).spawn()
    };
    let ranks = (0..WORLD).map(start).collect::<std::io::Result<Vec<Child>>>()?;
    let mut said = String::new();
    for rank in ranks {
        let output = rank.wait_with_output()?;
        if !output.status.success() {
            return Err("a rank has failed".into());
        }
        said += &String::from_utf8_lossy(&output.stdout);
    }
    print!("{said}");
    Ok(said)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Prints what tcx reports: damage, a full disk, lost rows, and a summary of each module at the end.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let (Some(rank), [dir, rest @ ..]) = (rank(), &args[..]) {
        let number = rest.first().map_or(Ok(0), |number| number.parse())?;
        return Ok(epoch(Path::new(dir), rank, number)?);
    }
    let dir = tempfile::tempdir()?;
    let first = launch(dir.path(), 0, ["RANK", "WORLD_SIZE"])?;
    assert_eq!(first.matches(": 50 computed").count(), WORLD);
    let second = launch(dir.path(), 1, ["SLURM_PROCID", "SLURM_NTASKS"])?;
    assert_eq!(second.matches(": 0 computed").count(), WORLD, "what each needs, another one has persisted");
    Ok(())
}
