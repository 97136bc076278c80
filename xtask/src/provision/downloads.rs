//! The folder of verified wheels, shared by every checkout of this user.
//!
//! A wheel is downloaded into a temporary folder beside its place, verified, and renamed into it: under its
//! own name there is never anything but a finished download. It is hashed again at every use, so that a
//! damaged one is noticed and fetched again.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, OnPath, Result};
use crate::provision::install::{Lock, Partial};
use crate::provision::wheel::Wheel;

/// The folder of kept wheels.
pub(crate) struct Downloads {
    folder: PathBuf,
}

impl Downloads {
    /// The folder that this user's environment asks for.
    pub(crate) fn of_user() -> Result<Self> {
        let folder = choose(
            std::env::var_os("TCX_DOWNLOADS"),
            std::env::var_os("XDG_CACHE_HOME"),
            std::env::home_dir().map(PathBuf::into_os_string),
        )?;
        Ok(Self { folder: std::path::absolute(&folder).on("resolve", &folder)? })
    }

    /// The kept wheel; `fetch` puts it into the folder it is given if it is missing or damaged.
    pub(crate) fn provide(
        &self,
        wheel: &Wheel,
        fetch: impl FnOnce(&Wheel, &Partial) -> Result<()>,
    ) -> Result<PathBuf> {
        let place = self.folder.join(wheel.file);
        // Without the lock first: a complete folder may be read-only.
        if is_good(wheel, &place) {
            return Ok(place);
        }
        fs::create_dir_all(&self.folder).on("create the folder", &self.folder)?;
        let lock = Lock::take(&self.folder.join(".lock"))?;
        if place.exists() {
            match wheel.verify(&place) {
                Ok(()) => return Ok(place),
                Err(failure) => eprintln!("{failure}\nthe file is damaged: downloading it again"),
            }
        }
        let partial = Partial::beside(&place, &lock)?;
        fetch(wheel, &partial)?;
        let fetched = only_wheel(partial.path(), wheel)?;
        wheel.verify(&fetched)?;
        File::open(&fetched).and_then(|file| file.sync_all()).on("sync", &fetched)?;
        fs::rename(&fetched, &place).on("rename", &fetched)?;
        Ok(place)
    }
}

fn is_good(wheel: &Wheel, place: &Path) -> bool {
    place.is_file() && wheel.verify(place).is_ok()
}

/// Where downloads are kept. The arguments are `TCX_DOWNLOADS`, `XDG_CACHE_HOME` and the home folder.
fn choose(asked: Option<OsString>, cache: Option<OsString>, home: Option<OsString>) -> Result<PathBuf> {
    let given = |value: Option<OsString>| value.filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(folder) = given(asked) {
        return Ok(folder);
    }
    // The XDG specification: a relative path there is to be ignored.
    if let Some(cache) = given(cache).filter(|cache| cache.is_absolute()) {
        return Ok(cache.join("tcx"));
    }
    match given(home) {
        Some(home) => Ok(home.join(".cache/tcx")),
        None => Err(Failure::new(
            "no folder to keep downloads in: HOME is not set; set it, or set TCX_DOWNLOADS to a folder",
        )),
    }
}

fn only_wheel(folder: &Path, wheel: &Wheel) -> Result<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).on("list", folder)? {
        let path = entry.on("list", folder)?.path();
        if path.extension().is_some_and(|extension| extension == "whl") {
            found.push(path);
        }
    }
    match (found.pop(), found.len()) {
        (Some(path), 0) => Ok(path),
        (last, rest) => Err(Failure::new(format!(
            "the download of {} contains {} wheels, expected one; check pip's settings and start again",
            wheel.requirement(),
            rest + usize::from(last.is_some())
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provision::wheel::Tags;

    /// A wheel whose bytes are `abc`.
    const SMALL: Wheel = Wheel {
        package: "small",
        version: "1",
        file: "small-1-py3-none-any.whl",
        sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        tags: Tags::Any,
    };

    fn fetch_good(_: &Wheel, into: &Partial) -> Result<()> {
        let file = into.path().join("another_name.whl");
        fs::write(&file, "abc").on("write", &file)
    }

    fn no_fetch(_: &Wheel, _: &Partial) -> Result<()> {
        Err(Failure::new("fetched although a good wheel was kept"))
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != ".lock")
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_folder_is_the_asked_one_then_the_cache_then_home() {
        let os = |text: &str| Some(OsString::from(text));
        assert_eq!(choose(os("/asked"), os("/cache"), os("/home/me")).unwrap(), Path::new("/asked"));
        assert_eq!(choose(None, os("/cache"), os("/home/me")).unwrap(), Path::new("/cache/tcx"));
        assert_eq!(choose(os(""), os("relative"), os("/home/me")).unwrap(), Path::new("/home/me/.cache/tcx"));
        assert_eq!(choose(None, None, os("/home/me")).unwrap(), Path::new("/home/me/.cache/tcx"));
        for home in [None, os("")] {
            let message = choose(None, None, home).unwrap_err().to_string();
            assert!(message.contains("HOME") && message.contains("TCX_DOWNLOADS"), "{message}");
        }
    }

    #[test]
    fn a_fetched_wheel_is_kept_under_its_own_name() {
        let folder = tempfile::tempdir().unwrap();
        let downloads = Downloads { folder: folder.path().join("made/on/demand") };
        let kept = downloads.provide(&SMALL, fetch_good).unwrap();
        assert_eq!(fs::read(&kept).unwrap(), b"abc");
        assert_eq!(names(&downloads.folder), [SMALL.file]);
        assert_eq!(downloads.provide(&SMALL, no_fetch).unwrap(), kept);
    }

    #[test]
    fn a_damaged_wheel_is_fetched_again() {
        let folder = tempfile::tempdir().unwrap();
        let downloads = Downloads { folder: folder.path().to_path_buf() };
        fs::write(folder.path().join(SMALL.file), "abd").unwrap();
        let kept = downloads.provide(&SMALL, fetch_good).unwrap();
        assert_eq!(fs::read(kept).unwrap(), b"abc");
    }

    #[test]
    fn a_failed_download_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let downloads = Downloads { folder: folder.path().to_path_buf() };
        let failing = |_: &Wheel, into: &Partial| {
            fs::write(into.path().join("small.whl"), "a").unwrap();
            Err(Failure::new("the network went away"))
        };
        assert!(downloads.provide(&SMALL, failing).unwrap_err().to_string().contains("network"));
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn wrong_bytes_are_refused_and_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let downloads = Downloads { folder: folder.path().to_path_buf() };
        let wrong = |_: &Wheel, into: &Partial| {
            let file = into.path().join("small.whl");
            fs::write(&file, "abd").on("write", &file)
        };
        assert!(downloads.provide(&SMALL, wrong).unwrap_err().to_string().contains(SMALL.sha256));
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn what_a_killed_download_left_is_cleared_away() {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join(format!("{}.partial-1", SMALL.file));
        fs::create_dir(&left).unwrap();
        fs::write(left.join("half.whl"), "a").unwrap();
        let downloads = Downloads { folder: folder.path().to_path_buf() };
        downloads.provide(&SMALL, fetch_good).unwrap();
        assert_eq!(names(folder.path()), [SMALL.file]);
    }

    #[test]
    fn a_download_without_a_wheel_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let downloads = Downloads { folder: folder.path().to_path_buf() };
        let message = downloads.provide(&SMALL, |_, _| Ok(())).unwrap_err().to_string();
        assert!(message.contains("small==1 contains 0 wheels"), "{message}");
    }
}
