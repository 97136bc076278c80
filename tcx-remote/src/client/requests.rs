//! What is asked of a store, counted where it leaves: each try of a request, and the bytes in both directions.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};

/// The requests that were made to a store, each try counted. Providers bill the first two groups differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Requests {
    /// Objects or parts of objects written, and uploads of several parts begun and completed.
    pub puts: u64,
    /// Pages of listings.
    pub lists: u64,
    /// Objects or parts of objects read.
    pub gets: u64,
    /// Objects asked for, but not read.
    pub heads: u64,
    /// Objects removed and uploads given up.
    pub deletes: u64,
    /// Bytes sent in bodies.
    pub sent: u64,
    /// Bytes received in bodies.
    pub received: u64,
}

impl Requests {
    /// All requests.
    pub fn all(&self) -> u64 {
        let Self { puts, lists, gets, heads, deletes, sent: _, received: _ } = self;
        puts + lists + gets + heads + deletes
    }
}

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { puts, lists, gets, heads, deletes, sent, received } = self;
        write!(
            f,
            "{puts} puts, {lists} lists, {gets} gets, {heads} heads, {deletes} deletes; {sent} bytes sent, {received} bytes received"
        )
    }
}

/// The counters behind [`Requests`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    puts: AtomicU64,
    lists: AtomicU64,
    gets: AtomicU64,
    heads: AtomicU64,
    deletes: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
}

impl Counters {
    pub(crate) fn read(&self) -> Requests {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Requests {
            puts: of(&self.puts),
            lists: of(&self.lists),
            gets: of(&self.gets),
            heads: of(&self.heads),
            deletes: of(&self.deletes),
            sent: of(&self.sent),
            received: of(&self.received),
        }
    }

    fn count(&self, request: &HttpRequest) {
        let counter = match request.method().as_str() {
            "HEAD" => &self.heads,
            "DELETE" => &self.deletes,
            "GET" if is_listing(request) => &self.lists,
            "GET" => &self.gets,
            _ => &self.puts,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.sent.fetch_add(request.body().content_length() as u64, Ordering::Relaxed);
    }
}

/// What is known of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Whether it answers a request for a listing.
    pub(crate) is_listing: bool,
}

fn is_listing(request: &HttpRequest) -> bool {
    let is_list = |query: &str| query.contains("list-type=") || query.contains("comp=list");
    request.method().as_str() == "GET" && request.uri().query().is_some_and(is_list)
}

tokio::task_local! {
    /// The last answer to a request of the task: errors of `object_store` say it only in texts, which may repeat what was sent.
    pub(crate) static ANSWER: Cell<Option<Answer>>;
}

/// Connects as `object_store` does and counts what goes through.
#[derive(Debug)]
pub(crate) struct CountingConnector(pub(crate) Arc<Counters>);

impl HttpConnector for CountingConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(CountingService { client, counters: self.0.clone() }))
    }
}

#[derive(Debug)]
struct CountingService {
    client: HttpClient,
    counters: Arc<Counters>,
}

#[async_trait]
impl HttpService for CountingService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.counters.count(&request);
        let (is_read, is_listing) = (request.method().as_str() == "GET", is_listing(&request));
        let answer = self.client.execute(request).await;
        let last_answer =
            answer.as_ref().ok().map(|answer| Answer { status: answer.status().as_u16(), is_listing });
        // Outside of a try there is no task to ask.
        let _ = ANSWER.try_with(|last| last.set(last_answer));
        if let Some(length) = answer.as_ref().ok().filter(|_| is_read).and_then(content_length) {
            self.counters.received.fetch_add(length, Ordering::Relaxed);
        }
        answer
    }
}

fn content_length(answer: &HttpResponse) -> Option<u64> {
    answer.headers().get("content-length")?.to_str().ok()?.parse().ok()
}
