//! Shows: augmentations as views of a sample: several rows under one id, each computed once.
//! Run: `cargo run --example views`
//! Look at: the second pass over all augmentations computes nothing; invalidating a sample means all its views.

use tch::{Device, Kind, Tensor};
use tcx::{Cache, Extractor, cached_module};

const VIEWS: u32 = 4;

#[cached_module(id = "views_texture_v1")]
struct Texture {
    weight: f64,
}

impl Extractor for Texture {
    type Input = Tensor;
    type Output = Vec<f32>;

    fn forward(&self, images: &Tensor) -> tcx::Result<Vec<f32>> {
        let steps = images.f_diff::<Tensor>(1, 2, None, None)?.f_abs()?.f_flatten(1, -1)?;
        let mean = steps.f_mean_dim([1i64].as_slice(), false, Kind::Float)? * self.weight;
        Ok(Vec::try_from(mean)?)
    }
}

fn decode(id: &str) -> Tensor {
    Tensor::arange(64, (Kind::Float, Device::Cpu)).view([8, 8]) * id.len() as f64
}

/// View 0 is the image itself; each other one is the same transform in every run: its number is its seed.
fn augment(image: &Tensor, view: u32) -> Tensor {
    match view {
        0 => image.shallow_clone(),
        1 => image.flip([1]),
        _ => {
            tch::manual_seed(i64::from(view));
            image + image.rand_like()
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Prints what tcx reports: damage, a full disk, lost rows, and a summary of each module at the end.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let dir = tempfile::tempdir()?;
    let texture = Cache::open(dir.path())?.module(Texture { weight: 0.5 })?;
    let ids: Vec<String> = (0..16).map(|i| format!("leaf {i}")).collect();
    for pass in 0..2 {
        for view in 0..VIEWS {
            let found = texture.view(view).fetch(&ids, |missing| {
                let images: Vec<Tensor> = missing.ids().map(|id| augment(&decode(id), view)).collect();
                Ok(Tensor::f_stack(&images, 0)?)
            })?;
            println!("pass {pass}, view {view}: {:.3} for {}", found[0], ids[0]);
        }
        assert_eq!(texture.stats().misses, 16 * u64::from(VIEWS), "nothing in the second pass");
    }
    texture.invalidate(&ids[..1])?;
    for view in 0..VIEWS {
        assert_eq!(texture.view(view).coverage(&ids)?.missing(), [0]);
    }
    println!("{} computed, {} served", texture.stats().misses, texture.stats().hits);
    Ok(())
}
