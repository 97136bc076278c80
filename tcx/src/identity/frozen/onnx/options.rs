//! How ONNX Runtime computes a network, and what of it is part of the identity.

use std::fmt;

use ort::environment::Environment;
use ort::ep::ExecutionProviderDispatch;
use ort::session::builder::{AutoDevicePolicy, GraphOptimizationLevel, SessionBuilder};

use crate::tensor::onnx::runtime;
use crate::{Error, ErrorKind, Result};

/// Providers that compute the operators of the network as they are, in its dtypes. All others compile it into a form of their own,
/// some of them with fewer bits.
const EXACT: [&str; 3] = ["CPUExecutionProvider", "CUDAExecutionProvider", "ROCMExecutionProvider"];

/// Each session has the whole network in memory: a number above this is a mistake.
const MOST_SESSIONS: usize = 256;

/// How ONNX Runtime computes a network: see [`Frozen::onnx`](crate::Frozen::onnx).
///
/// ```
/// use ort::session::builder::GraphOptimizationLevel;
/// use tcx::OnnxOptions;
///
/// let options = OnnxOptions::new().intra_threads(4).optimization(GraphOptimizationLevel::Level1);
/// # let _ = options;
/// ```
#[derive(Clone, Default)]
pub struct OnnxOptions {
    optimization: Option<GraphOptimizationLevel>,
    intra_threads: Option<usize>,
    /// One, if it is not set.
    sessions: Option<usize>,
    providers: Vec<ExecutionProviderDispatch>,
    environment: Option<Environment>,
}

impl OnnxOptions {
    /// On the CPU, with all optimizations, and with as many threads as there are cores.
    pub fn new() -> Self {
        Self::default()
    }

    /// How far ONNX Runtime may rewrite the network; `All` by default. It is part of the identity: quantized networks compute with
    /// integers at some levels, and with floats at others.
    #[must_use]
    pub fn optimization(mut self, level: GraphOptimizationLevel) -> Self {
        self.optimization = Some(level);
        self
    }

    /// The number of threads that compute one operator.
    #[must_use]
    pub fn intra_threads(mut self, threads: usize) -> Self {
        self.intra_threads = Some(threads);
        self
    }

    /// How many batches of the network can be computed at once (1), as [`Cached::concurrency`](crate::Cached::concurrency) lets threads
    /// do. Each has a session of its own, which takes as much memory as the network, and as many threads as
    /// [`intra_threads`](Self::intra_threads) says: set that to the number of cores divided by this one.
    #[must_use]
    pub fn sessions(mut self, sessions: usize) -> Self {
        self.sessions = Some(sessions);
        self
    }

    /// What computes, in the order of preference; operators that it does not have are computed on the CPU. A provider that cannot be
    /// used is an error, not left out.
    ///
    /// CPU, CUDA and `ROCm` are no part of the identity, as devices are in all libraries. The name of every other provider is: it compiles
    /// the network into a form of its own. The settings of a provider are not, because the crate `ort` does not show them: if you
    /// change one that changes results, such as the precision, change the module's id.
    #[must_use]
    pub fn execution_providers(
        mut self,
        providers: impl IntoIterator<Item = ExecutionProviderDispatch>,
    ) -> Self {
        self.providers = providers.into_iter().collect();
        self
    }

    /// The environment of the program, which has made one with `ort::init`: no process can have two. Its execution providers are
    /// used if these options have none.
    #[must_use]
    pub fn environment(mut self, environment: &Environment) -> Self {
        self.environment = Some(environment.clone());
        self
    }

    fn providers(&self) -> &[ExecutionProviderDispatch] {
        match &self.environment {
            Some(environment) if self.providers.is_empty() => environment.execution_providers(),
            _ => &self.providers,
        }
    }

    /// The number of sessions.
    ///
    /// # Errors
    ///
    /// Returns an error for a number that makes no sense.
    pub(super) fn check_sessions(&self) -> Result<usize> {
        let sessions = self.sessions.unwrap_or(1);
        if (1..=MOST_SESSIONS).contains(&sessions) {
            return Ok(sessions);
        }
        let expected = format!("a number from 1 to {MOST_SESSIONS}");
        let message = format!("`sessions` of `OnnxOptions`: expected {expected}, found {sessions}");
        let error = Error::new(ErrorKind::InvalidSettings, message);
        let error = error.with_expected(expected, sessions.to_string());
        Err(error.with_remedy("pass the number of batches to compute at once"))
    }

    /// What follows the fingerprint of the files: nothing for the default.
    ///
    /// # Errors
    ///
    /// Returns an error for a level that this version of tcx does not know.
    pub(super) fn identity(&self) -> Result<String> {
        let mut text = match self.optimization {
            None | Some(GraphOptimizationLevel::All) => String::new(),
            Some(GraphOptimizationLevel::Disable) => ", not optimized".to_owned(),
            Some(GraphOptimizationLevel::Level1) => ", optimized to level 1".to_owned(),
            Some(GraphOptimizationLevel::Level2) => ", optimized to level 2".to_owned(),
            Some(GraphOptimizationLevel::Level3) => ", optimized to level 3".to_owned(),
            Some(other) => {
                let message = format!("tcx does not know the level of optimization {other:?}");
                return Err(Error::new(ErrorKind::InvalidSettings, message));
            }
        };
        let names = self.providers().iter().map(ExecutionProviderDispatch::name);
        for name in names.filter(|name| !EXACT.contains(name)) {
            text.extend([", ", name]);
        }
        Ok(text)
    }

    /// The providers, for people.
    pub(super) fn named(&self) -> Vec<&'static str> {
        self.providers().iter().map(ExecutionProviderDispatch::name).collect()
    }

    /// A builder with these settings.
    ///
    /// # Errors
    ///
    /// Returns an error if the library cannot be loaded, or lacks a provider.
    pub(super) fn builder(&self) -> Result<SessionBuilder> {
        // Also where the program has an environment: the crate `ort` panics without the library.
        runtime::load()?;
        let environment = self.environment.clone().map_or_else(runtime::environment, Ok)?;
        let level = self.optimization.unwrap_or(GraphOptimizationLevel::All);
        // Nothing chooses a device by itself: the identity would not show it.
        let builder = SessionBuilder::new(&environment)?
            .with_no_environment_execution_providers()?
            .with_auto_device(AutoDevicePolicy::PreferCPU)?
            .with_optimization_level(level)?;
        let builder = match self.intra_threads {
            Some(threads) => builder.with_intra_threads(threads)?,
            None => builder,
        };
        let providers: Vec<_> =
            self.providers().iter().map(|provider| provider.clone().error_on_failure()).collect();
        Ok(if providers.is_empty() { builder } else { builder.with_execution_providers(providers)? })
    }
}

impl fmt::Debug for OnnxOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnnxOptions")
            .field("optimization", &self.optimization)
            .field("intra_threads", &self.intra_threads)
            .field("sessions", &self.sessions)
            .field("execution_providers", &self.named())
            .finish_non_exhaustive()
    }
}
