//! Devices: their names, whether this process has them, and copies to them.

use tch::{Cuda, Device, Kind, TchError, Tensor};

use super::brief;
use crate::{Error, ErrorKind, Result};

/// libtorch numbers devices in 8 bits: it would take `cuda:256` for `cuda:0`.
const BEYOND: usize = 128;

/// The name as PyTorch writes it: `cpu`, `cuda:3`, `mps`.
pub(crate) fn device_name(device: Device) -> String {
    match device {
        Device::Cpu => "cpu".to_owned(),
        Device::Cuda(number) => format!("cuda:{number}"),
        other => format!("{other:?}").to_lowercase(),
    }
}

/// Checks that libtorch has this device. To be asked before `tch` creates variables there, since `tch` panics if it cannot.
///
/// # Errors
///
/// Returns an error that names the device and what libtorch has.
pub(crate) fn check_device(device: Device) -> Result<()> {
    let (is_available, found) = match device {
        Device::Cpu => return Ok(()),
        Device::Cuda(number) => {
            let count = Cuda::device_count();
            let found = match count {
                0 => "no CUDA device".to_owned(),
                1 => "1 CUDA device".to_owned(),
                count => format!("{count} CUDA devices"),
            };
            (i64::try_from(number).is_ok_and(|number| number < count), found)
        }
        Device::Mps => (tch::utils::has_mps(), "no MPS device".to_owned()),
        Device::Vulkan => (tch::utils::has_vulkan(), "no Vulkan device".to_owned()),
    };
    if is_available {
        return Ok(());
    }
    let name = device_name(device);
    let message = format!("device `{name}` is not available: libtorch finds {found}");
    Err(Error::new(ErrorKind::InvalidSettings, message)
        .with_expected(name, found)
        .with_remedy("pass a device of this machine, or install a libtorch that supports it"))
}

/// A new CPU tensor on a device, with elements of this kind.
///
/// # Errors
///
/// Returns an error that names the device if there is no such device or it has no memory left.
pub(super) fn to_device(tensor: &Tensor, device: Device, kind: Kind) -> Result<Tensor> {
    if matches!(device, Device::Cuda(number) if number >= BEYOND) {
        check_device(device)?;
    }
    let moved = copied(tensor, device).and_then(|moved| {
        // Converted there: fewer bytes are copied.
        if moved.f_kind()? == kind { Ok(moved) } else { moved.f_to_kind(kind) }
    });
    moved.map_err(|error| {
        let message = format!("cannot copy an output to device `{}`", device_name(device));
        Error::new(ErrorKind::Libtorch, message)
            .with_remedy(
                "set `output_device` to a device that exists and has free memory; computed rows are kept",
            )
            .with_source(brief(error))
    })
}

/// The tensor as it is, or its copy on another device. The copy to a GPU is made from pinned memory without waiting for it, and so for
/// nothing that the GPU still has to do; libtorch does not reuse the pinned memory before the copy has been made. Where no
/// memory can be pinned, it waits.
fn copied(tensor: &Tensor, device: Device) -> Result<Tensor, TchError> {
    if let Device::Cuda(_) = device
        // Not `pin_memory`: it warns on stderr each time that the device is passed, which `tch` always does.
        && let Ok(pinned) = tensor.f_internal_pin_memory(device)
    {
        return pinned.f_to_device_(device, tensor.f_kind()?, true, false);
    }
    tensor.f_to_device(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_the_names_of_pytorch() {
        let names = [Device::Cpu, Device::Cuda(3), Device::Mps, Device::Vulkan].map(device_name);
        assert_eq!(names, ["cpu", "cuda:3", "mps", "vulkan"]);
    }

    #[test]
    fn a_device_beyond_the_last_one_is_refused_by_name() {
        check_device(Device::Cpu).unwrap();
        let count = Cuda::device_count();
        for number in 0..count as usize {
            check_device(Device::Cuda(number)).unwrap();
        }
        for number in [count as usize, 2 * BEYOND] {
            let error = check_device(Device::Cuda(number)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSettings);
            let message = error.to_string();
            assert!(
                message.contains(&format!("`cuda:{number}`")) && message.contains("CUDA device"),
                "{message}"
            );
        }
    }

    #[test]
    fn a_copy_has_the_same_elements_and_a_device_that_takes_none_is_named() {
        let values: Vec<f32> = (0..50_000_u16).map(f32::from).collect();
        let tensor = Tensor::from_slice(&values);
        for number in 0..Cuda::device_count() as usize {
            let moved = to_device(&tensor, Device::Cuda(number), Kind::Double).unwrap();
            assert_eq!((moved.device(), moved.kind()), (Device::Cuda(number), Kind::Double));
            assert_eq!(
                Vec::<f32>::try_from(moved.to_kind(Kind::Float).to_device(Device::Cpu)).unwrap(),
                values
            );
        }
        for number in [Cuda::device_count() as usize, 2 * BEYOND] {
            let error = to_device(&tensor, Device::Cuda(number), Kind::Float).unwrap_err();
            let message = format!("{error:#}");
            assert!(message.contains(&format!("`cuda:{number}`")) && message.contains("CUDA"), "{message}");
            assert!(!message.contains('\n'), "{message}");
        }
    }
}
