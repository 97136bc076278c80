//! What a cache is bound to: weights, configuration and source.

mod describe;
mod device_weights;
mod fields;
mod foreign_partials;
mod identity;
mod objects;
mod refused_networks;
mod stamps;
mod stateless;
mod trainable;
mod weights;
