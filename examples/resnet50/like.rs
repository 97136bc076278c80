//! Search: the images whose features are most like those of another.

use std::path::Path;
use std::slice::from_ref;
use std::time::Instant;

use anyhow::ensure;
use indicatif::HumanCount;
use tch::Tensor;
use tcx::Cached;

use crate::epoch::{epoch, fetch};
use crate::model::ResNet50;
use crate::pictures::{Picture, Pictures};

/// How many images are shown.
const SHOWN: usize = 5;

/// Prints the images of the folder that are most like the one in `file`.
pub(crate) fn like(
    cached: &Cached<ResNet50>,
    pictures: &Pictures,
    batch: usize,
    file: &Path,
) -> anyhow::Result<()> {
    let asked = asked(pictures, file)?;
    let one = fetch(cached, from_ref(&asked))?;
    let mut features = Vec::new();
    let done = epoch(cached, &pictures.all, batch, |pooled| features.push(pooled))?;
    let start = Instant::now();
    let ranked = ranked(&Tensor::f_cat(&features, 0)?, &one)?;
    eprintln!(
        "features of {} images in {:.3} s ({} from the cache, {} computed), searched in {:.3} s\n",
        HumanCount(done.rows),
        done.seconds,
        HumanCount(done.hits),
        HumanCount(done.misses),
        start.elapsed().as_secs_f64()
    );
    println!("most like {}:", asked.file.display());
    // That an image is like itself says nothing.
    let others = ranked.into_iter().filter(|&(at, _)| pictures.all[at].id != asked.id);
    for (at, cosine) in others.take(SHOWN) {
        println!("{cosine:.4}  {}", pictures.all[at].file.display());
    }
    Ok(())
}

/// The image to compare with. One of the folder is found in the cache.
fn asked(pictures: &Pictures, file: &Path) -> anyhow::Result<Picture> {
    let within = pictures.folder.join(file);
    let file = if file.is_file() { file } else { &within };
    ensure!(
        file.is_file(),
        "`--like`: no such file, neither here nor in {}: {}",
        pictures.folder.display(),
        file.strip_prefix(&pictures.folder).unwrap_or(file).display()
    );
    let same = |picture: &&Picture| same_file(&picture.file, file);
    match pictures.all.iter().find(same) {
        Some(picture) => Ok(picture.clone()),
        None => Picture::of(&pictures.folder, file.to_owned()),
    }
}

/// Whether two paths lead to the same file.
fn same_file(one: &Path, other: &Path) -> bool {
    one.file_name() == other.file_name()
        && one.canonicalize().ok().is_some_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

/// All rows of `features` with the cosines of the angles between them and `one`, largest first.
fn ranked(features: &Tensor, one: &Tensor) -> anyhow::Result<Vec<(usize, f32)>> {
    let cosines = Vec::<f32>::try_from(Tensor::f_cosine_similarity(features, one, 1, 1e-12)?)?;
    let mut ranked: Vec<_> = cosines.into_iter().enumerate().collect();
    ranked.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    Ok(ranked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_ranked_by_their_direction() {
        let features = Tensor::from_slice2(&[[0f32, 1.], [3., 0.], [-1., 0.], [2., 2.]]);
        let ranked = ranked(&features, &Tensor::from_slice2(&[[0.5f32, 0.]])).unwrap();
        let order: Vec<_> = ranked.iter().map(|(at, _)| *at).collect();
        assert_eq!(order, [1, 3, 0, 2]);
        for ((_, cosine), expected) in ranked.iter().zip([1., 0.5f32.sqrt(), 0., -1.]) {
            assert!((cosine - expected).abs() < 1e-6, "{cosine} for {expected}");
        }
    }

    #[test]
    fn an_image_is_looked_for_here_and_in_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("images")).unwrap();
        let file = |name: &str| folder.path().join(name);
        std::fs::write(file("images/a.png"), "a").unwrap();
        std::fs::write(file("b.png"), "b").unwrap();
        let pictures = Pictures::read(&file("images"), None).unwrap();
        for name in [Path::new("a.png"), &file("images/../images/a.png")] {
            assert_eq!(asked(&pictures, name).unwrap().id, pictures.all[0].id);
        }
        let other = asked(&pictures, &file("b.png")).unwrap();
        assert_eq!(other.id, format!("{} {}", slashes(&file("b.png")), blake3::hash(b"b")));
        let message = asked(&pictures, Path::new("c.png")).unwrap_err().to_string();
        assert!(message.starts_with("`--like`: no such file") && message.ends_with(": c.png"), "{message}");
    }

    fn slashes(path: &Path) -> String {
        path.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/")
    }
}
