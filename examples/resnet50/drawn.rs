//! Images for users without any: patterns, the same in every run.

use std::fs;
use std::path::Path;

use anyhow::Context;
use image::{ImageFormat, Rgb, RgbImage};

/// From a place, in units of the image's shorter side, to a brightness from 0 to 1.
type Pattern = fn(f32, f32) -> f32;

const KINDS: [(&str, Pattern); 6] = [
    ("stripes", |x, y| wave(x * 9. + y * 2.)),
    ("checks", |x, y| f32::from((x * 8.).floor() as i32 % 2 == (y * 8.).floor() as i32 % 2)),
    ("rings", |x, y| wave((x - 0.5).hypot(y - 0.5) * 12.)),
    ("dots", |x, y| f32::from(((x * 6.).fract() - 0.5).hypot((y * 6.).fract() - 0.5) < 0.3)),
    ("ramp", |x, y| f32::midpoint(x, y)),
    ("waves", |x, y| f32::midpoint(wave(x * 4. + wave(y * 3.)), wave(y * 5. - wave(x * 2.)))),
];
const COLOURS: [(&str, Rgb<u8>, Rgb<u8>); 6] = [
    ("red", Rgb([230, 57, 70]), Rgb([241, 250, 238])),
    ("blue", Rgb([29, 53, 87]), Rgb([168, 218, 220])),
    ("green", Rgb([45, 106, 79]), Rgb([216, 243, 220])),
    ("yellow", Rgb([255, 183, 3]), Rgb([2, 48, 71])),
    ("grey", Rgb([33, 37, 41]), Rgb([233, 236, 239])),
    ("violet", Rgb([90, 24, 154]), Rgb([224, 170, 255])),
];
const SIZES: [(u32, u32); 4] = [(320, 240), (240, 320), (256, 256), (400, 225)];

/// Draws the images that are not in the folder yet; one that a user edited stays as it is.
pub(crate) fn draw(folder: &Path) -> anyhow::Result<()> {
    let failed = || format!("cannot draw images into {}", folder.display());
    fs::create_dir_all(folder).with_context(failed)?;
    for number in 0..KINDS.len() * COLOURS.len() {
        let (name, format) = named(number);
        let file = folder.join(&name);
        if file.exists() {
            continue;
        }
        // In one step, so that no half-written image is left by a kill in between.
        let draft = folder.join(format!("{name}.{}", std::process::id()));
        image(number).save_with_format(&draft, format).with_context(failed)?;
        fs::rename(draft, file).with_context(failed)?;
    }
    Ok(())
}

/// The kind of an image changes with every number, its colour with every round.
fn traits(number: usize) -> (usize, usize) {
    (number % KINDS.len(), number / KINDS.len())
}

/// The file that an image is in. Each kind and each colour comes in both formats.
fn named(number: usize) -> (String, ImageFormat) {
    let (kind, colour) = traits(number);
    let (ending, format) = match (kind + colour) % 2 {
        0 => ("png", ImageFormat::Png),
        _ => ("jpg", ImageFormat::Jpeg),
    };
    (format!("{number:02}-{}-{}.{ending}", KINDS[kind].0, COLOURS[colour].0), format)
}

fn image(number: usize) -> RgbImage {
    let (kind, colour) = traits(number);
    let ((_, pattern), (_, dark, light)) = (KINDS[kind], COLOURS[colour]);
    let (width, height) = SIZES[number % SIZES.len()];
    let scale = width.min(height) as f32;
    RgbImage::from_fn(width, height, |x, y| {
        let share = pattern(x as f32 / scale, y as f32 / scale).clamp(0., 1.);
        let mix = |i: usize| f32::from(dark[i]) + (f32::from(light[i]) - f32::from(dark[i])) * share;
        Rgb(std::array::from_fn(|i| mix(i).round() as u8))
    })
}

/// Once up and down per unit.
fn wave(x: f32) -> f32 {
    0.5 + 0.5 * (x * std::f32::consts::TAU).sin()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pictures::Pictures;

    #[test]
    fn the_same_images_are_drawn_every_time_and_edits_are_kept() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let ids = |folder: &Path| -> Vec<_> {
            draw(folder).unwrap();
            Pictures::read(folder, None).unwrap().all.into_iter().map(|picture| picture.id).collect()
        };
        let drawn = ids(one.path());
        assert_eq!(drawn.len(), 36);
        assert_eq!(ids(other.path()), drawn);
        assert!(drawn[0].starts_with("00-stripes-red.png ") && drawn[1].starts_with("01-checks-red.jpg "));
        fs::write(other.path().join("00-stripes-red.png"), "edited").unwrap();
        let edited = ids(other.path());
        assert_ne!(edited[0], drawn[0]);
        assert_eq!(edited[1..], drawn[1..]);
    }
}
