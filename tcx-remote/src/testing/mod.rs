//! What tests share: the simulation of machines that use one module.

pub(crate) mod runtime;
mod simulation;
