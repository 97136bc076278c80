//! What the tests share. Tests of private parts are in the module `tests` of the file they test; tests of what a store does
//! are in `behaviour`, those of many processes in `simulation`, those of a power loss in `power_loss`.

#[cfg(test)]
mod behaviour;
#[cfg(test)]
mod faulty;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
#[cfg(test)]
mod power_loss;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod runtime;
#[cfg(any(test, feature = "testing"))]
pub mod simulation;
#[cfg(test)]
mod support;

#[cfg(test)]
pub(crate) use faulty::{Fault, Faulty};
#[cfg(test)]
pub(crate) use runtime::go_ahead;
#[cfg(test)]
pub(crate) use support::*;
