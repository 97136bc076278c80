//! An S3 server for tests: it creates objects atomically, counts requests, and fails as tests want it to.
//!
//! Objects are in memory, and in a directory as well if the server is to be killed and started again.

mod faults;
mod listing;
mod service;
mod state;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use tokio::sync::oneshot;

pub use faults::{Fault, Faults, Operation};
use service::Service;
pub use state::Counts;
use state::State;

/// The only bucket of a server.
pub const BUCKET: &str = "tcx";

/// The credentials that it accepts.
pub const ACCESS_KEY: &str = "AKIATEST";
/// The secret of these.
pub const SECRET_KEY: &str = "hunter2hunter2";

/// A server that runs until it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    state: Arc<State>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// A server without objects, on a port of its own.
    ///
    /// # Panics
    ///
    /// If this machine has no free port.
    #[must_use]
    pub fn start() -> Self {
        Self::start_at("127.0.0.1:0", State::default()).expect("a port of this machine is free")
    }

    /// A server at this address whose objects are in a directory, those of an earlier server included.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory cannot be read or the address is taken.
    pub fn with_directory(address: &str, dir: &Path) -> io::Result<Self> {
        Self::start_at(address, State::of_directory(dir)?)
    }

    fn start_at(address: &str, state: State) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let (address, state) = (listener.local_addr()?, Arc::new(state));
        let (stop, stopped) = oneshot::channel();
        let mut builder = S3ServiceBuilder::new(Service(state.clone()));
        builder.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
        let service = builder.build();
        let serve = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime can be made").block_on(async {
                tokio::select! {
                    () = serve(listener, service) => {}
                    _ = stopped => {}
                }
            });
        };
        let thread = thread::Builder::new().name("tcx-test-s3".to_owned()).spawn(serve)?;
        Ok(Self { address, state, stop: Some(stop), thread: Some(thread) })
    }

    /// The URL of a prefix in its bucket.
    #[must_use]
    pub fn url(&self, prefix: &str) -> String {
        format!("http://{}/{BUCKET}/{prefix}", self.address)
    }

    /// The settings with which `object_store` reaches it.
    #[must_use]
    pub fn settings(&self) -> [(&'static str, &'static str); 3] {
        [
            ("aws_access_key_id", ACCESS_KEY),
            ("aws_secret_access_key", SECRET_KEY),
            ("aws_region", "us-east-1"),
        ]
    }

    /// Changes how it fails from now on.
    pub fn fail(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.state.faults());
    }

    /// The next request of this kind for a key with `part` in it fails so.
    pub fn fail_next(&self, operation: Operation, part: &str, fault: Fault) {
        self.state.faults().planned.push((operation, part.to_owned(), fault));
    }

    /// No fault is planned any more.
    pub fn forget_planned(&self) {
        self.state.faults().planned.clear();
    }

    /// How many faults that were [planned](Self::fail_next) have not happened.
    #[must_use]
    pub fn planned(&self) -> usize {
        self.state.faults().planned.len()
    }

    /// The requests that it has answered, failed ones included.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.state.counts()
    }

    /// The bytes of objects that it has sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.state.sent()
    }

    /// The keys of all objects.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        self.state.keys()
    }

    /// The bytes of an object.
    #[must_use]
    pub fn object(&self, key: &str) -> Option<Vec<u8>> {
        self.state.get(key).map(|object| object.bytes.to_vec())
    }

    /// Puts an object there, as another machine would.
    pub fn put(&self, key: &str, bytes: &[u8]) {
        self.state.put(key, bytes.to_vec().into());
    }

    /// Removes an object, as another machine would.
    pub fn remove(&self, key: &str) {
        self.state.remove(key);
    }

    /// Uploads that were begun, and neither completed nor given up.
    #[must_use]
    pub fn open_uploads(&self) -> usize {
        self.state.open_uploads()
    }

    /// Waits until the server ends, which it does not by itself.
    pub fn wait(mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(listener: TcpListener, service: S3Service) {
    let listener = tokio::net::TcpListener::from_std(listener).expect("the listener works");
    let server = auto::Builder::new(TokioExecutor::new());
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let connection = server.serve_connection(TokioIo::new(stream), service.clone()).into_owned();
        tokio::spawn(async move {
            // A client that goes away is no error.
            let _ = connection.await;
        });
    }
}
