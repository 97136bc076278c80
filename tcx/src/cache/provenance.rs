//! Where the rows of a cache come from: kept with its identity for people to read, and no part of it.

use crate::tensor::Device;

/// The version of tch that tcx is built with, and the libtorch that it takes; neither has its version in its API.
#[cfg(feature = "tch")]
const TCH: &str = "0.26 (libtorch 2.13)";

/// The version of candle that tcx is built with.
#[cfg(feature = "candle")]
const CANDLE: &str = "0.11";

/// The version of ort that tcx is built with. The library that it loads adds its own.
#[cfg(feature = "ort")]
const ORT: &str = "2.0.0-rc.15";

/// The entries for a module whose outputs are computed on `device`.
pub(crate) fn provenance(device: &Device) -> Vec<(String, String)> {
    let mut entries = vec![
        ("tcx", env!("CARGO_PKG_VERSION").to_owned()),
        #[cfg(feature = "tch")]
        ("tch", TCH.to_owned()),
        #[cfg(feature = "candle")]
        ("candle", CANDLE.to_owned()),
        #[cfg(feature = "ort")]
        ("ort", ORT.to_owned()),
        ("platform", format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH)),
        ("device", device.name().to_owned()),
    ];
    #[cfg(feature = "tch")]
    if let Some(tch::Device::Cuda(_)) = device.get()
        && tch::utils::has_cudart()
    {
        entries.push(("cuda", tch::utils::version_cudart().to_string()));
    }
    #[cfg(feature = "ort")]
    if let Some(build) = crate::tensor::onnx::runtime::build() {
        entries.push(("onnxruntime", build.to_owned()));
    }
    entries.push(("host", host()));
    entries.extend(program().map(|program| ("program", program)));
    entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(unix)]
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

/// The name of the program's file, without the folders before it.
fn program() -> Option<String> {
    Some(std::env::current_exe().ok()?.file_name()?.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_computed_the_rows_and_where() {
        let entries = provenance(&Device::CPU);
        let value = |name: &str| entries.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str());
        assert_eq!(value("tcx"), Some(env!("CARGO_PKG_VERSION")));
        assert_eq!(value("device"), Some("cpu"));
        assert!(value("host").is_some_and(|host| !host.is_empty()));
        assert!(value("program").is_some_and(|program| program.starts_with("tcx")));
    }
}
