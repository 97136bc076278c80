//! Where tensors are, in any library.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::{Error, ErrorKind, Result};

/// Where the tensors of an output are: the memory of this machine, or a device of a tensor library.
///
/// It is made from the library's own type, which methods such as [`Cached::output_device`](crate::Cached::output_device) take
/// as it is. A library of your own makes it with [`new`](Self::new), and finds its own type again with [`get`](Self::get).
///
/// ```
/// use tcx::Device;
///
/// /// The number of an accelerator.
/// #[derive(Debug, PartialEq)]
/// struct Npu(u8);
///
/// let device = Device::new("npu:3", Npu(3));
/// assert_eq!((device.name(), device.get()), ("npu:3", Some(&Npu(3))));
/// assert!(Device::CPU.is_cpu() && !device.is_cpu());
/// ```
#[derive(Clone)]
pub struct Device {
    name: Cow<'static, str>,
    /// The device of the library; `None` for the memory of this machine, which is the same in all of them.
    own: Option<Arc<dyn Any + Send + Sync>>,
}

impl Device {
    /// The memory of this machine.
    pub const CPU: Self = Self { name: Cow::Borrowed("cpu"), own: None };

    /// A device of a library, with the name that messages show, such as `cuda:0`.
    pub fn new<D: Any + Send + Sync>(name: impl Into<Cow<'static, str>>, device: D) -> Self {
        Self { name: name.into(), own: Some(Arc::new(device)) }
    }

    /// The name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether this is the memory of this machine.
    pub fn is_cpu(&self) -> bool {
        self.own.is_none()
    }

    /// The device as its library has it, if `D` is the type of that library.
    pub fn get<D: Any>(&self) -> Option<&D> {
        self.own.as_deref()?.downcast_ref()
    }

    /// The error of a library that does not have this device.
    pub(crate) fn unknown(&self, library: &str) -> Error {
        let message = format!("device `{}` is not a device of {library}", self.name);
        Error::new(ErrorKind::InvalidSettings, message)
            .with_remedy("set `output_device` to a device of the library that the output's tensors are of")
    }

    /// Checks that the library of the device has it, as far as that is known before it is used.
    ///
    /// # Errors
    ///
    /// Returns an error that names the device and what the library has.
    #[cfg_attr(
        not(feature = "tch"),
        expect(
            clippy::unused_self,
            clippy::unnecessary_wraps,
            reason = "only tch names devices that may be missing"
        )
    )]
    pub(crate) fn check(&self) -> Result<()> {
        #[cfg(feature = "tch")]
        if let Some(device) = self.get::<tch::Device>() {
            return super::torch::check_device(*device);
        }
        Ok(())
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.name)
    }
}
