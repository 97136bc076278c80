//! Shows: a cache inside a web service (axum): requests hold up no worker thread of the runtime, equal ones at once are computed once.
//! Run: `cargo run --example async_service`; with `--serve` it goes on, for `curl -d 'some text' http://127.0.0.1:PORT/embed`
//! Look at: twenty requests for three texts at once make three computations; a request without a text is answered with 400.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use tch::nn::{self, Module};
use tch::{Device, Tensor};
use tcx::{Cache, Cached, D1, Extractor, Frozen, Missing, Typed, cached_module};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
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

/// The handler: the text is its own id. Should the client go away, what has begun is finished and kept.
async fn embed(
    State(embedder): State<Arc<Cached<Embedder>>>,
    text: String,
) -> Result<String, (StatusCode, String)> {
    if text.is_empty() || text.len() > 4096 {
        return Err((StatusCode::BAD_REQUEST, "expected a text of 1 to 4096 bytes\n".to_owned())); // what an id can be
    }
    let failed = |error: tcx::Error| (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}\n"));
    let load = |missing: Missing<'_, String>| Ok(missing.ids().cloned().collect());
    let found = embedder.fetch_owned(vec![text], load).await.map_err(failed)?;
    let row = Vec::<f32>::try_from(found.flatten(0, -1)).map_err(|error| failed(error.into()))?;
    Ok(format!("{row:?}\n"))
}

/// Asks as any client would.
async fn ask(address: SocketAddr, text: &str) -> std::io::Result<String> {
    let mut connection = TcpStream::connect(address).await?;
    let length = text.len();
    let head = format!(
        "POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    connection.write_all((head + text).as_bytes()).await?;
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

    let service = Router::new().route("/embed", post(embed)).with_state(embedder.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}/embed");
    let server = tokio::spawn(axum::serve(listener, service).into_future());
    if std::env::args().any(|arg| arg == "--serve") {
        return Ok(server.await??);
    }
    let ask_one = |i: usize| tokio::spawn(async move { ask(address, ["a", "b", "c"][i % 3]).await });
    let asked: Vec<_> = (0..20).map(ask_one).collect();
    let mut answers = Vec::new();
    for answer in asked {
        answers.push(answer.await??);
        assert!(answers.iter().all(|answer| answer.starts_with("HTTP/1.1 200 OK")), "{answers:?}");
    }
    let row = |answer: &String| answer.rsplit("\r\n").next().map(str::to_owned);
    assert_eq!(row(&answers[0]), row(&answers[3]), "equal texts have equal rows");
    assert_ne!(row(&answers[0]), row(&answers[1]));
    assert!(ask(address, "").await?.starts_with("HTTP/1.1 400"), "an empty id is rejected");
    println!("20 requests: {} rows computed", embedder.stats().rows_accepted);
    assert_eq!(embedder.stats().rows_accepted, 3);
    server.abort();
    Ok(cache.close_async().await?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Prints what tcx reports: damage, a full disk, lost rows, and a summary of each module at the end.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(run())
}
