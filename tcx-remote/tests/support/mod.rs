//! A bucket on a test server.

use std::time::Duration;

use tcx_remote::{Bucket, ClientOptions, Location};
use tcx_test_s3::Server;

/// Of every call: longer than any test lets a server be late.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) fn options(server: &Server) -> ClientOptions {
    let set = |options: ClientOptions, (name, value)| options.set(name, value);
    server.settings().into_iter().fold(ClientOptions::default().deadline(DEADLINE), set)
}

pub(crate) fn bucket(server: &Server, prefix: &str) -> Bucket {
    bucket_with(&server.url(prefix), options(server))
}

pub(crate) fn bucket_with(url: &str, options: ClientOptions) -> Bucket {
    match Location::parse(url).unwrap() {
        Location::Store(url) => Bucket::new(url, options).unwrap(),
        Location::Directory(path) => panic!("{} is a directory", path.display()),
    }
}
