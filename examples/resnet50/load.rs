//! The loader: from the files that are missing to the network's input.

use anyhow::Context;
use tch::Tensor;
use tcx_examples::on_all_cores;

use crate::pictures::Picture;
use crate::prepare::IMAGENET;

/// Decodes and prepares some images, on all cores: `[images, 3, 224, 224]`.
pub(crate) fn load(pictures: &[&Picture]) -> tcx::Result<Tensor> {
    let shape = IMAGENET.shape();
    let size = shape.iter().product();
    let mut numbers = vec![0f32; pictures.len() * size];
    let work = pictures.iter().zip(numbers.chunks_exact_mut(size));
    on_all_cores(work, || (), |(), (picture, into)| decode(picture, into)).map_err(tcx::Error::loader)?;
    let [colours, rows, columns] = shape.map(|side| side as i64);
    Ok(Tensor::f_from_slice(&numbers)?.f_view([pictures.len() as i64, colours, rows, columns])?)
}

fn decode(picture: &Picture, into: &mut [f32]) -> anyhow::Result<()> {
    let unusable =
        || format!("{} is no image that can be used (repair it or move it away)", picture.file.display());
    IMAGENET.write(&picture.bytes()?, into).with_context(unusable)
}

#[cfg(test)]
mod tests {
    use image::{Rgb, RgbImage};

    use super::*;

    #[test]
    fn images_are_rows_in_order_and_a_broken_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let picture = |name: &str| Picture::of(folder.path(), folder.path().join(name)).unwrap();
        for (name, grey) in [("dark.png", 0), ("light.jpg", 255)] {
            RgbImage::from_pixel(300, 256, Rgb([grey; 3])).save(folder.path().join(name)).unwrap();
        }
        std::fs::write(folder.path().join("broken.png"), "no image").unwrap();
        let (dark, light, broken) = (picture("dark.png"), picture("light.jpg"), picture("broken.png"));
        let images = load(&[&light, &dark, &light]).unwrap();
        assert_eq!(images.size(), [3, 3, 224, 224]);
        assert_eq!(images.get(0), images.get(2));
        assert!(images.get(0).min().double_value(&[]) > images.get(1).max().double_value(&[]));
        let message = format!("{:#}", load(&[&dark, &broken]).unwrap_err());
        assert!(message.contains("broken.png is no image that can be used"), "{message}");
    }
}
