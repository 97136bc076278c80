//! How a test server is reached.

use std::time::Duration;

use tcx_remote::ClientOptions;
use tcx_test_s3::Server;

/// Of every call: longer than any test lets a server be late.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) fn options(server: &Server) -> ClientOptions {
    let set = |options: ClientOptions, (name, value)| options.set(name, value);
    server.settings().into_iter().fold(ClientOptions::default().deadline(DEADLINE), set)
}
