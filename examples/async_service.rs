//! Shows: a cache inside a web service: requests hold up no worker thread of the runtime, equal ones at once are computed once.
//! Run: `cargo run --example async_service`; with `--serve` it goes on, for `curl http://127.0.0.1:PORT/some-text`
//! Look at: twenty requests for three texts make three computations. `embed` would be the same in axum or any other framework.

use std::net::SocketAddr;
use std::sync::Arc;

use tch::nn::{self, Module};
use tch::{Device, Tensor};
use tcx::{Cache, Cached, D1, Extractor, Frozen, Typed, cached_module};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

#[cached_module(id = "service_embeddings_v1")]
struct Embedder {
    net: Frozen<nn::Linear>,
}

impl Extractor for Embedder {
    type Input = Vec<String>;
    type Output = Typed<f32, D1<4>>;

    fn forward(&self, texts: &Vec<String>) -> tcx::Result<Self::Output> {
        std::thread::sleep(std::time::Duration::from_millis(50)); // a network takes its time
        let byte = |text: &String, i| f32::from(*text.as_bytes().get(i).unwrap_or(&0));
        let rows: Vec<f32> = texts.iter().flat_map(|text| (0..8).map(move |i| byte(text, i))).collect();
        Ok(self.net.forward(&Tensor::from_slice(&rows).f_view([-1, 8])?).into())
    }
}

/// The handler of a request: the text is its own id. Should the client go away, what has begun is finished and kept.
async fn embed(embedder: &Arc<Cached<Embedder>>, text: String) -> tcx::Result<Vec<f32>> {
    let load = |missing: tcx::Missing<'_, String>| Ok(missing.ids().cloned().collect());
    let found = embedder.fetch_owned(vec![text], load).await?;
    Ok(Vec::try_from(found.f_flatten(0, -1)?)?)
}

/// Answers one request: just enough of HTTP for an example.
async fn answer(embedder: Arc<Cached<Embedder>>, connection: TcpStream) -> std::io::Result<()> {
    let mut connection = BufReader::new(connection);
    let mut request = String::new();
    connection.read_line(&mut request).await?;
    // The headers, up to an empty line.
    while connection.read_line(&mut String::new()).await? > "\r\n".len() {}
    let path = request.split(' ').nth(1).unwrap_or_default();
    let (status, body) = match embed(&embedder, path.trim_start_matches('/').to_owned()).await {
        Ok(row) => ("200 OK", format!("{row:?}\n")),
        Err(error) => ("400 Bad Request", format!("{error}\n")),
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    connection.write_all((head + &body).as_bytes()).await
}

async fn serve(embedder: Arc<Cached<Embedder>>, listener: TcpListener) -> std::io::Result<()> {
    loop {
        let (connection, _) = listener.accept().await?;
        tokio::spawn(answer(embedder.clone(), connection));
    }
}

/// Asks as a browser would.
async fn ask(address: SocketAddr, text: &str) -> std::io::Result<String> {
    let mut connection = TcpStream::connect(address).await?;
    connection.write_all(format!("GET /{text} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await?;
    Ok(answer)
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let cache = Cache::open(dir.path())?;
    tch::manual_seed(7);
    let build = |p: &nn::Path<'_>| nn::linear(p, 8, 4, nn::LinearConfig::default());
    let net = Frozen::build(nn::VarStore::new(Device::Cpu), build)?;
    let embedder = Arc::new(cache.module(Embedder { net })?);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}");
    let server = tokio::spawn(serve(embedder.clone(), listener));
    if std::env::args().any(|arg| arg == "--serve") {
        return Ok(server.await??);
    }
    let ask_one = |i: usize| tokio::spawn(async move { ask(address, ["a", "b", "c"][i % 3]).await });
    let answers: Vec<_> = (0..20).map(ask_one).collect();
    for answer in answers {
        assert!(answer.await??.starts_with("HTTP/1.1 200 OK"));
    }
    assert!(ask(address, "").await?.starts_with("HTTP/1.1 400"), "an empty id is none");
    println!("20 requests: {} rows computed", embedder.stats().rows_accepted);
    assert_eq!(embedder.stats().rows_accepted, 3);
    server.abort();
    Ok(cache.close_async().await?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(run())
}
