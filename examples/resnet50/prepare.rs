//! From the bytes of a file to the numbers that the network takes, as it was trained on `ImageNet`.

use std::io::Cursor;

use anyhow::ensure;
use image::imageops::{self, FilterType};
use image::{ImageFormat, ImageReader, RgbImage};
use tcx::Stateless;

/// Sides that differ by a larger factor would be resized to something enormous.
const MOST_OBLONG: u32 = 100;

/// How an image is prepared. It decides what the network sees, so it is a field of the module, and thereby part
/// of the cache's identity.
#[derive(Clone, Copy, Debug, Stateless)]
pub(crate) struct Preparation {
    /// What the shorter side is resized to.
    shorter: u32,
    /// The side of the square that is cut out of the middle.
    side: u32,
    /// What is subtracted from each colour, which go from 0 to 1.
    mean: [f32; 3],
    /// What each colour is divided by afterwards.
    deviation: [f32; 3],
}

/// What the published weights expect.
pub(crate) const IMAGENET: Preparation =
    Preparation { shorter: 256, side: 224, mean: [0.485, 0.456, 0.406], deviation: [0.229, 0.224, 0.225] };

impl Preparation {
    /// The shape of an image: colours, rows, columns.
    pub(crate) fn shape(&self) -> [usize; 3] {
        [3, self.side as usize, self.side as usize]
    }

    /// Decodes a JPEG or PNG file and writes its numbers into `into`, which has room for [`shape`](Self::shape).
    pub(crate) fn write(&self, file: &[u8], into: &mut [f32]) -> anyhow::Result<()> {
        // What is in the file counts, not its name.
        let reader = ImageReader::new(Cursor::new(file)).with_guessed_format()?;
        ensure!(reader.format() != Some(ImageFormat::Jpeg) || ends(file), "unexpected end of file");
        self.normalise(&self.square(&reader.decode()?.into_rgb8())?, into);
        Ok(())
    }

    /// Resizes the image and cuts the square out of its middle.
    fn square(&self, image: &RgbImage) -> anyhow::Result<RgbImage> {
        let (width, height) = image.dimensions();
        let (short, long) = (width.min(height), width.max(height));
        ensure!(
            short > 0 && long / short < MOST_OBLONG,
            "expected sides of which one is less than {MOST_OBLONG} times the other, found {width} × {height}"
        );
        let longer = (u64::from(self.shorter) * u64::from(long) / u64::from(short)) as u32;
        let (width, height) = if width < height { (self.shorter, longer) } else { (longer, self.shorter) };
        let resized = imageops::resize(image, width, height, FilterType::Triangle);
        // Half a pixel goes to the even side, as in the training of the published weights.
        let margin = |side: u32| (f64::from(side - self.side) / 2.).round_ties_even() as u32;
        Ok(imageops::crop_imm(&resized, margin(width), margin(height), self.side, self.side).to_image())
    }

    /// One plane per colour, where a decoder has the colours of each pixel together.
    fn normalise(&self, image: &RgbImage, into: &mut [f32]) {
        let planes = into.chunks_exact_mut((self.side * self.side) as usize);
        for (colour, plane) in planes.enumerate() {
            let (mean, deviation) = (self.mean[colour], self.deviation[colour]);
            for (number, pixel) in plane.iter_mut().zip(image.pixels()) {
                *number = (f32::from(pixel[colour]) / 255. - mean) / deviation;
            }
        }
    }
}

/// Whether a JPEG file is whole: the decoder fills up what is cut off with grey, and says nothing.
fn ends(jpeg: &[u8]) -> bool {
    // Neither mark occurs within the data of an image.
    let last = |mark: [u8; 2]| jpeg.windows(2).rposition(|bytes| bytes == mark);
    last([0xFF, 0xD9]) > last([0xFF, 0xDA])
}

#[cfg(test)]
mod tests {
    use image::{DynamicImage, Rgb};

    use super::*;

    const NUMBERS: usize = 3 * 224 * 224;

    fn encoded(image: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
        let mut file = Cursor::new(Vec::new());
        image.into().write_to(&mut file, format).unwrap();
        file.into_inner()
    }

    fn prepared(file: &[u8]) -> anyhow::Result<Vec<f32>> {
        let mut numbers = vec![f32::NAN; NUMBERS];
        IMAGENET.write(file, &mut numbers).map(|()| numbers)
    }

    #[test]
    fn one_colour_stays_one_and_is_normalised() {
        assert_eq!(IMAGENET.shape().iter().product::<usize>(), NUMBERS);
        let image = RgbImage::from_pixel(31, 77, Rgb([255, 0, 51]));
        let expected = [(1. - 0.485) / 0.229, -0.456 / 0.224, (0.2 - 0.406) / 0.225];
        for (format, tolerance) in [(ImageFormat::Png, 1e-5), (ImageFormat::Jpeg, 0.05)] {
            let numbers = prepared(&encoded(image.clone(), format)).unwrap();
            for (plane, expected) in numbers.chunks(224 * 224).zip(expected) {
                assert!(plane.iter().all(|number| (number - expected).abs() < tolerance), "{expected}");
            }
        }
    }

    #[test]
    fn the_middle_is_cut_out() {
        // Already of the right height: nothing is resized, and 38 columns go on each side.
        let image = RgbImage::from_fn(300, 256, |x, y| Rgb([(x % 256) as u8, y as u8, 0]));
        let square = IMAGENET.square(&image).unwrap();
        assert_eq!(square.dimensions(), (224, 224));
        assert_eq!((square[(0, 0)], square[(223, 223)]), (Rgb([38, 16, 0]), Rgb([5, 239, 0])));
    }

    #[test]
    fn the_shorter_side_decides_whichever_it_is() {
        let halves = |x: u32, of: u32| if x < of / 2 { Rgb([0, 0, 0]) } else { Rgb([200, 100, 0]) };
        let wide = IMAGENET.square(&RgbImage::from_fn(1024, 512, |x, _| halves(x, 1024))).unwrap();
        let high = IMAGENET.square(&RgbImage::from_fn(100, 200, |_, y| halves(y, 200))).unwrap();
        for (one, other) in [(wide[(100, 5)], wide[(123, 5)]), (high[(5, 100)], high[(5, 123)])] {
            assert_eq!((one, other), (Rgb([0, 0, 0]), Rgb([200, 100, 0])));
        }
    }

    #[test]
    fn grey_and_transparent_images_have_three_colours() {
        let grey = image::GrayImage::from_pixel(300, 300, image::Luma([255]));
        let clear = image::RgbaImage::from_pixel(300, 300, image::Rgba([255, 255, 255, 0]));
        let (grey, clear) = (encoded(grey, ImageFormat::Png), encoded(clear, ImageFormat::Png));
        assert_eq!(prepared(&grey).unwrap(), prepared(&clear).unwrap());
    }

    #[test]
    fn what_is_no_image_is_refused() {
        assert!(prepared(b"").is_err() && prepared(b"no image").is_err());
        for format in [ImageFormat::Png, ImageFormat::Jpeg] {
            let whole = encoded(RgbImage::new(300, 300), format);
            assert!(prepared(&[&whole, &b"more"[..]].concat()).is_ok());
            for length in [whole.len() / 2, whole.len() - whole.len() / 9] {
                assert!(prepared(&whole[..length]).is_err(), "{format:?} {length}");
            }
        }
        let message = prepared(&encoded(RgbImage::new(400, 2), ImageFormat::Png)).unwrap_err().to_string();
        assert!(message.ends_with("less than 100 times the other, found 400 × 2"), "{message}");
    }
}
