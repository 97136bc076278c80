//! Shows: no module at all: a folder of images is decoded once, by eight loader processes that fill a table during the first epoch.
//! Run: `cargo run --example dataset`
//! Look at: the second epoch decodes nothing, whichever process asks for an image.

use std::path::{Path, PathBuf};
use std::process::Command;

use tch::Tensor;
use tcx::{Cache, CacheableOutput, Error, Table};

const LOADERS: usize = 8;

#[derive(CacheableOutput)]
struct Decoded {
    #[tensor(u8, [3, 32, 32])]
    pixels: Tensor,
    width: Vec<i32>, // before it was resized
}

fn table(dir: &Path) -> tcx::Result<Table<Decoded>> {
    // A table watches nothing: what decides its values is named here.
    Table::builder("dataset_decoded_v1").metadata("size", "32").open(&Cache::open(dir.join("cache"))?)
}

fn decode(paths: &[&String]) -> tcx::Result<Decoded> {
    let (mut pixels, mut width) = (Vec::new(), Vec::new());
    for path in paths {
        let image = image::open(path).map_err(Error::loader)?;
        width.push(image.width() as i32);
        let small = image.resize_exact(32, 32, image::imageops::FilterType::Triangle).to_rgb8();
        pixels.push(Tensor::from_slice(small.as_raw()).f_view([32, 32, 3])?.f_permute([2, 0, 1])?);
    }
    Ok(Decoded { pixels: Tensor::f_stack(&pixels, 0)?, width })
}

/// One loader: the images of its share of the batches. Returns how many it had to decode.
fn load(dir: &Path, files: &[String], loader: usize, epoch: usize) -> tcx::Result<u64> {
    let table = table(dir)?;
    for batch in files.chunks(4).skip((loader + epoch) % LOADERS).step_by(LOADERS) {
        let images = table.get_or_compute(batch, |missing| decode(&missing.ids().collect::<Vec<_>>()))?;
        assert_eq!(images.pixels.size(), [batch.len() as i64, 3, 32, 32]);
        assert!(images.width.iter().all(|width| *width >= 40));
    }
    table.flush()?;
    Ok(table.stats().misses)
}

fn files(dir: &Path) -> std::io::Result<Vec<String>> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir.join("images"))?
        .map(|file| file.map(|file| file.path()))
        .collect::<std::io::Result<_>>()?;
    files.sort();
    Ok(files.iter().map(|file| file.to_string_lossy().into_owned()).collect())
}

fn draw(dir: &Path) -> Result<(), Box<dyn std::error::Error>> {
    std::fs::create_dir(dir.join("images"))?;
    for number in 0..64_u8 {
        let image = image::RgbImage::from_fn(40 + u32::from(number), 40, |x, y| {
            image::Rgb([x as u8 * 2, y as u8 * 3, number * 4])
        });
        image.save(dir.join(format!("images/{number:02}.png")))?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Prints what tcx reports: damage, a full disk, lost rows, and a summary of each module at the end.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [dir, loader, epoch] = &args[..] {
        let dir = Path::new(dir);
        println!("{}", load(dir, &files(dir)?, loader.parse()?, epoch.parse()?)?);
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    draw(dir.path())?;
    for epoch in 0..2 {
        let start = |loader: usize| {
            let mut process = Command::new(std::env::current_exe()?);
            process.arg(dir.path()).args([loader.to_string(), epoch.to_string()]);
            process.stdout(std::process::Stdio::piped()).spawn()
        };
        let loaders = (0..LOADERS).map(start).collect::<std::io::Result<Vec<_>>>()?;
        let mut decoded = Vec::new();
        for loader in loaders {
            let output = loader.wait_with_output()?;
            decoded.push(String::from_utf8(output.stdout)?.trim().parse::<u64>()?);
        }
        println!("epoch {epoch}: the loaders decoded {decoded:?} images");
        assert_eq!(decoded.iter().sum::<u64>(), if epoch == 0 { 64 } else { 0 });
    }
    Ok(())
}
