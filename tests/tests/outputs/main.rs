//! What is computed and what comes back: batches, their ids, and the values of their rows.

mod batches;
mod columns;
mod devices;
mod gathered;
mod ids;
mod in_memory;
mod layouts;
mod outputs;
mod rejected_outputs;
mod validate;
