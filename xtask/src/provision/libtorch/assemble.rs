//! The libtorch of this workspace, put together from three pinned wheels.

use std::env::consts::{ARCH, OS};
use std::fs;
use std::path::{Path, PathBuf};

use super::{Libtorch, Source, VERSION};
use crate::failure::{Failure, OnPath, Result};
use crate::provision::downloads::Downloads;
use crate::provision::install::{Partial, install, invalidate};
use crate::provision::python::Python;
use crate::provision::unpack::unpack;
use crate::provision::wheel::{CUDA_CUPTI, CUDA_RUNTIME, TORCH, Wheel};

/// What is taken out of each wheel. Where `libtorch_cuda` is missing, torch-sys links the CPU libraries only;
/// `libtorch_cpu` still names the two CUDA libraries.
const PARTS: [(&Wheel, &[(&str, &str)]); 3] = [
    (
        &TORCH,
        &[
            ("torch/include/", "include"),
            ("torch/lib/libc10.so", "lib/libc10.so"),
            ("torch/lib/libtorch.so", "lib/libtorch.so"),
            ("torch/lib/libtorch_cpu.so", "lib/libtorch_cpu.so"),
            ("torch/lib/libtorch_global_deps.so", "lib/libtorch_global_deps.so"),
            ("torch/lib/libgomp.so.1", "lib/libgomp.so.1"),
        ],
    ),
    (&CUDA_RUNTIME, &[("nvidia/cu13/lib/libcudart.so.13", "lib/libcudart.so.13")]),
    (&CUDA_CUPTI, &[("nvidia/cu13/lib/libcupti.so.13", "lib/libcupti.so.13")]),
];

/// This workspace's libtorch in `place`, assembled if it is not there yet.
pub(super) fn provide(place: PathBuf) -> Result<Libtorch> {
    require_platform(OS, ARCH, cfg!(target_env = "gnu"))?;
    if !is_complete(&place) {
        invalidate(&place);
    }
    install(&place, &source(), |folder| assemble(folder, &place))?;
    Ok(Libtorch {
        libraries: place.join("lib"),
        source: Source::Assembled(place),
        version: Some(VERSION.to_owned()),
    })
}

fn assemble(folder: &Partial, place: &Path) -> Result<()> {
    let python = Python::find()?;
    let downloads = Downloads::of_user()?;
    let mut wheels = Vec::new();
    for (wheel, entries) in PARTS {
        wheels.push((downloads.provide(wheel, |wheel, into| python.fetch(wheel, into))?, entries));
    }
    eprintln!("unpacking libtorch {VERSION} to {}", place.display());
    for (wheel, entries) in wheels {
        unpack(&python, &wheel, folder, entries)?;
    }
    // torch-sys compares this with the release that it was made for.
    let version = folder.path().join("build-version");
    fs::write(&version, format!("{VERSION}\n")).on("write", &version)
}

/// The pins: if one changes, libtorch is assembled again.
fn source() -> String {
    PARTS.map(|(wheel, _)| format!("{} {}", wheel.requirement(), wheel.sha256)).join("\n")
}

/// Whether all named files are still there.
fn is_complete(place: &Path) -> bool {
    let mut named = PARTS.iter().flat_map(|(_, entries)| entries.iter());
    named.all(|(_, file)| place.join(file).exists())
}

fn require_platform(os: &str, arch: &str, is_gnu: bool) -> Result<()> {
    if os == "linux" && arch == "x86_64" && is_gnu {
        return Ok(());
    }
    Err(Failure::new(format!(
        "xtask provides libtorch only on Linux x86-64 with glibc, found {os} {arch}: install libtorch {VERSION} and \
         set LIBTORCH to its absolute path, or install torch=={VERSION} for Python and set LIBTORCH_USE_PYTORCH=1"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_platforms_are_told_what_to_do() {
        require_platform("linux", "x86_64", true).unwrap();
        for (os, arch, is_gnu) in
            [("macos", "aarch64", false), ("linux", "aarch64", true), ("linux", "x86_64", false)]
        {
            let message = require_platform(os, arch, is_gnu).unwrap_err().to_string();
            assert!(message.contains(os) && message.contains("LIBTORCH_USE_PYTORCH"), "{message}");
        }
    }

    #[test]
    fn a_folder_is_complete_with_every_part() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("include")).unwrap();
        fs::create_dir_all(root.path().join("lib")).unwrap();
        for (_, file) in
            PARTS.iter().flat_map(|(_, entries)| entries.iter()).filter(|(_, file)| *file != "include")
        {
            assert!(!is_complete(root.path()));
            fs::write(root.path().join(file), "").unwrap();
        }
        assert!(is_complete(root.path()));
    }

    #[test]
    fn the_source_names_every_pin() {
        for (wheel, _) in PARTS {
            assert!(source().contains(wheel.sha256));
        }
    }
}
