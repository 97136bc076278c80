//! Provisioning and the two README commands.
fn main() {}
