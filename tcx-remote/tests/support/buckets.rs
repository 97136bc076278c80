//! A bucket on a test server.

use tcx_remote::{Bucket, ClientOptions, Location};
use tcx_test_s3::Server;

use crate::support::options;

pub(crate) fn bucket(server: &Server, prefix: &str) -> Bucket {
    bucket_with(&server.url(prefix), options(server))
}

pub(crate) fn bucket_with(url: &str, options: ClientOptions) -> Bucket {
    match Location::parse(url).unwrap() {
        Location::Store(url) => Bucket::new(url, options).unwrap(),
        Location::Directory(path) => panic!("{} is a directory", path.display()),
    }
}
