//! A network that ONNX Runtime computes, and its outputs.

use std::any::Any;
use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use ort::session::{Session, SessionInputs};
use ort::value::{DynTensor, DynTensorValueType, DynValue, Outlet};

use crate::tensor::{TensorLike, TensorMemory, lend_bytes};
use crate::{Error, ErrorKind, Result};

/// A network in the format ONNX, as [`Frozen::onnx`](crate::Frozen::onnx) makes it.
///
/// A session computes one batch at a time: ONNX Runtime does not allow more for all of its execution providers. It uses several
/// threads for a batch. With [`OnnxOptions::sessions`](crate::OnnxOptions::sessions), the network has several sessions.
pub struct OnnxSession {
    /// Those that compute nothing.
    idle: Mutex<Vec<Session>>,
    returned: Condvar,
    inputs: Vec<String>,
    outputs: Vec<String>,
}

impl OnnxSession {
    /// Of sessions of one network, at least one.
    pub(super) fn new(sessions: Vec<Session>) -> Self {
        let names = |outlets: &[Outlet]| outlets.iter().map(|outlet| outlet.name().to_owned()).collect();
        let first = sessions.first();
        let (inputs, outputs) =
            first.map(|first| (names(first.inputs()), names(first.outputs()))).unwrap_or_default();
        Self { idle: Mutex::new(sessions), returned: Condvar::new(), inputs, outputs }
    }

    /// A panic of another thread leaves nothing half done: sessions are taken and put back as a whole.
    fn idle(&self) -> MutexGuard<'_, Vec<Session>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a session that computes nothing.
    fn take(&self) -> Taken<'_> {
        let mut idle = self.idle();
        loop {
            if let Some(session) = idle.pop() {
                return Taken { of: self, session: Some(session) };
            }
            idle = self.returned.wait(idle).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The names of the inputs, in the order in which [`run`](Self::run) takes them.
    pub fn inputs(&self) -> &[String] {
        &self.inputs
    }

    /// The names of the outputs.
    pub fn outputs(&self) -> &[String] {
        &self.outputs
    }

    /// Computes a batch. `ort::inputs!` makes the inputs, in the order of the network or by their names.
    ///
    /// # Errors
    ///
    /// Returns an error if the inputs do not fit the network, or if ONNX Runtime fails.
    pub fn run<'i, 'v: 'i, const N: usize>(
        &self,
        inputs: impl Into<SessionInputs<'i, 'v, N>>,
    ) -> Result<OnnxOutputs> {
        let mut taken = self.take();
        let Some(session) = &mut taken.session else { return Err(no_session()) };
        let outputs = session.run(inputs)?;
        Ok(OnnxOutputs(outputs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()))
    }
}

impl fmt::Debug for OnnxSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnnxSession")
            .field("inputs", &self.inputs)
            .field("outputs", &self.outputs)
            .finish_non_exhaustive()
    }
}

/// A session, for one batch. It is put back when this is dropped, also if `run` panics.
struct Taken<'a> {
    of: &'a OnnxSession,
    /// There until then.
    session: Option<Session>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.of.idle().extend(self.session.take());
        self.of.returned.notify_one();
    }
}

/// The outputs of a batch.
#[derive(Debug)]
pub struct OnnxOutputs(Vec<(String, DynValue)>);

impl OnnxOutputs {
    /// Takes an output, as a tensor of any library. Tensors of `ort` are not copied.
    ///
    /// # Errors
    ///
    /// Returns an error if the network has no such output, if it was taken already, or if it is no tensor of `T`.
    pub fn take<T: TensorLike>(&mut self, name: &str) -> Result<T> {
        let Some(at) = self.0.iter().position(|(own, _)| own == name) else {
            let names: Vec<_> = self.0.iter().map(|(name, _)| format!("`{name}`")).collect();
            let rest = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(refused(name, &format!("expected one of the outputs that were not taken ({rest})")));
        };
        let (_, value) = self.0.swap_remove(at);
        let tensor: DynTensor = value
            .downcast::<DynTensorValueType>()
            .map_err(|error| refused(name, "expected a tensor").with_source(error.to_string()))?;
        converted(tensor, name)
    }
}

fn converted<T: TensorLike>(tensor: DynTensor, name: &str) -> Result<T> {
    let mut tensor = Some(tensor);
    if let Some(own) = (&mut tensor as &mut dyn Any).downcast_mut::<Option<T>>().and_then(Option::take) {
        return Ok(own);
    }
    let Some(tensor) = tensor else { return Err(refused(name, "it was taken")) };
    let found = |error: Error| refused(name, &format!("expected a tensor that can be cached, found {error}"));
    let (dtype, shape) = (TensorLike::dtype(&tensor).map_err(found)?, TensorLike::shape(&tensor));
    if !T::DTYPES.contains(&dtype) {
        let dtypes: Vec<_> = T::DTYPES.iter().map(|dtype| dtype.name()).collect();
        return Err(refused(
            name,
            &format!("expected elements of {}, found {dtype} {shape:?}", dtypes.join(", ")),
        ));
    }
    let memory = lend_bytes(&tensor, |bytes| TensorMemory::copied(dtype, bytes))??;
    T::from_memory(memory, &shape)
        .map_err(|error| refused(name, &format!("cannot be made of {dtype} {shape:?}")).with_source(error))
}

fn no_session() -> Error {
    Error::new(ErrorKind::TensorLibrary, "the network has no session")
}

fn refused(name: &str, message: &str) -> Error {
    Error::new(ErrorKind::TensorLibrary, format!("output `{name}` of the network: {message}"))
}
