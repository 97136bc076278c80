//! Shows: calls of a language model that are paid once: a table by the content of prompt and settings, with text and scores.
//! Run: `cargo run --example llm`
//! Look at: 48 requests for 6 prompts make 6 answers of a model that fails now and then; other settings and old answers ask again.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tch::Tensor;
use tcx::{Cache, CacheableOutput, ContentId, Error, Table};

const PROMPTS: [&str; 6] = ["red", "orange", "yellow", "green", "blue", "violet"];

/// What the model answers to each prompt.
#[derive(CacheableOutput)]
struct Answers {
    texts: Vec<String>,
    /// The score of each word.
    #[tensor(f32, [_])]
    scores: Vec<Tensor>,
}

/// The model, as a program sees it: an address, and the settings that decide what it answers.
struct Model {
    address: SocketAddr,
    temperature: f32,
    answers: Table<Answers>,
}

impl Model {
    /// Answers are asked for again when they are older than `age`.
    fn open(dir: &Path, address: SocketAddr, temperature: f32, age: Duration) -> tcx::Result<Self> {
        let cache = Cache::builder().time_to_live(age).open(dir)?;
        Ok(Self { address, temperature, answers: cache.table("llm_answers_v1")? })
    }

    /// Everything that decides the answer is in the id; its parts cannot run into each other.
    fn id(&self, prompt: &str) -> ContentId {
        ContentId::of_text(format!("stub-7b\ntemperature {}\n{prompt}", self.temperature))
    }

    /// The stored answer, or that of the model. An error stores nothing.
    fn ask(&self, prompt: &str) -> tcx::Result<String> {
        let mut found = self.answers.get_or_compute(&[self.id(prompt)], |_| {
            let answer = complete(self.address, prompt).map_err(Error::loader)?;
            let words = answer.split_whitespace().map(|word| word.len() as f32).collect::<Vec<_>>();
            Ok(Answers { texts: vec![answer], scores: vec![Tensor::from_slice(&words)] })
        })?;
        Ok(found.texts.remove(0))
    }
}

/// One call of the model over HTTP; tried again as long as it is busy.
fn complete(address: SocketAddr, prompt: &str) -> std::io::Result<String> {
    for attempt in 0..5 {
        thread::sleep(Duration::from_millis(10 * attempt));
        let mut connection = TcpStream::connect(address)?;
        let length = prompt.len();
        write!(connection, "POST / HTTP/1.0\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{prompt}")?;
        let mut reply = String::new();
        connection.read_to_string(&mut reply)?;
        if let Some((head, answer)) = reply.split_once("\r\n\r\n")
            && head.starts_with("HTTP/1.0 200")
        {
            return Ok(answer.to_owned());
        }
    }
    Err(std::io::Error::other(format!("the model at {address} is busy")))
}

/// What the model has answered so far.
static ANSWERED: AtomicUsize = AtomicUsize::new(0);

/// Answers one request, or says that it is busy.
fn answer(mut connection: TcpStream, is_busy: bool) -> std::io::Result<()> {
    let (mut request, mut part) = (String::new(), [0; 512]);
    let body = loop {
        let read = connection.read(&mut part)?;
        if read == 0 {
            return Ok(()); // the client has gone
        }
        request.push_str(&String::from_utf8_lossy(&part[..read]));
        let Some((head, body)) = request.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok());
        if length.is_none_or(|length: usize| body.len() >= length) {
            break body;
        }
    };
    if is_busy {
        return connection.write_all(b"HTTP/1.0 503 Service Unavailable\r\n\r\n");
    }
    thread::sleep(Duration::from_millis(20)); // a model takes its time
    ANSWERED.fetch_add(1, Ordering::SeqCst);
    write!(connection, "HTTP/1.0 200 OK\r\n\r\n{body} is a colour of the rainbow")
}

/// A model on this machine, which counts its answers. Every third request finds it busy.
fn serve() -> std::io::Result<(SocketAddr, &'static AtomicUsize)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for (number, connection) in listener.incoming().flatten().enumerate() {
            thread::spawn(move || answer(connection, number % 3 == 0));
        }
    });
    Ok((address, &ANSWERED))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Prints what tcx reports: damage, a full disk, lost rows, and a summary of each module at the end.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let dir = tempfile::tempdir()?;
    let (address, answered) = serve()?;
    let day = Duration::from_hours(24);

    // Eight threads ask for the same prompts at once.
    let model = Model::open(dir.path(), address, 0., day)?;
    let asked = thread::scope(|scope| {
        let ask_all = || PROMPTS.iter().map(|prompt| model.ask(prompt)).collect::<tcx::Result<Vec<_>>>();
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask_all)).collect();
        threads.into_iter().map(|asks| asks.join().expect("no thread panics")).collect::<Vec<_>>()
    });
    for answers in asked {
        assert_eq!(answers?[1], "orange is a colour of the rainbow");
    }
    println!("48 requests, 6 prompts: the model has answered {} times", answered.load(Ordering::SeqCst));
    assert_eq!(answered.load(Ordering::SeqCst), 6);
    model.answers.flush()?;
    drop(model);

    // A program that runs later pays nothing; with other settings it does.
    Model::open(dir.path(), address, 0., day)?.ask("red")?;
    assert_eq!(answered.load(Ordering::SeqCst), 6);
    Model::open(dir.path(), address, 0.7, day)?.ask("red")?;
    assert_eq!(answered.load(Ordering::SeqCst), 7);

    // So does one for which the answers are too old.
    let age = Duration::from_secs(1);
    thread::sleep(age);
    Model::open(dir.path(), address, 0., age)?.ask("red")?;
    assert_eq!(answered.load(Ordering::SeqCst), 8);
    println!("one more with another temperature, and one more because the answer was too old");
    Ok(())
}
