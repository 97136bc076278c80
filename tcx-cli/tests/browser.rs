//! The report is opened in a browser: its charts are in the page, and nothing in it asks the network.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::iter::from_fn;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{clip, fill_clip, json, open, workplace};

/// A browser that hangs fails the test, not the whole run.
const PATIENCE: Duration = Duration::from_mins(3);

/// What a browser made of a page.
struct Opened {
    dom: String,
    /// What it complained of.
    console: Vec<String>,
    /// What it asked the network for, its maker left out.
    asked: Vec<String>,
}

/// Chromium or its like.
fn browser() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).flat_map(|dir| names.map(|name| dir.join(name)));
    found.into_iter().find(|program| runs(program))
}

/// Some systems have a program of this name that only says how to get one.
fn runs(program: &Path) -> bool {
    let told = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    told.is_ok_and(|told| told.status.success())
}

/// The browser; `None` without one, unless `TCX_REQUIRE` names it.
fn browser_or_skip() -> Option<PathBuf> {
    let found = browser();
    if found.is_none() {
        let why = "chromium is not installed (nor chromium-browser, google-chrome): the report is not opened";
        tcx_test_skips::skip("chromium", why);
    }
    found
}

/// A proxy that only writes down what it is asked for: its port, and that. It ends with the test.
fn proxy() -> (u16, Receiver<String>) {
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = proxy.local_addr().unwrap().port();
    let (ask, asked) = channel();
    spawn(move || {
        for connection in proxy.incoming().map_while(Result::ok) {
            let ask = ask.clone();
            // Browsers open connections that they may need, and say nothing on them: the others do not wait for these.
            spawn(move || {
                let mut line = String::new();
                let _ = connection.set_read_timeout(Some(Duration::from_secs(5)));
                let _ = BufReader::new(connection).read_line(&mut line);
                let _ = ask.send(line);
            });
        }
    });
    (port, asked)
}

/// A browser; what it has started ends with it.
struct Running(Child);

impl Running {
    fn end(&mut self) {
        let group = format!("kill -KILL -- -{}", self.0.id());
        let _ = Command::new("sh").args(["-c", &group]).output();
        let _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// What comes out of a pipe, piece by piece.
fn pieces(mut pipe: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (send, pieces) = channel();
    spawn(move || {
        let mut piece = vec![0; 1 << 16];
        while let Ok(len @ 1..) = pipe.read(&mut piece) {
            let _ = send.send(piece[..len].to_vec());
        }
    });
    pieces
}

/// All that has come. Its end is not waited for without limit: a program that the browser has left behind may hold the pipe open.
fn text(pieces: &Receiver<Vec<u8>>) -> String {
    let come = from_fn(|| pieces.recv_timeout(Duration::from_secs(5)).ok());
    String::from_utf8_lossy(&come.flatten().collect::<Vec<u8>>()).into_owned()
}

/// Opens a page; whatever it asks for goes to a proxy.
fn open_in(browser: &Path, page: &Path) -> Opened {
    let (port, asked) = proxy();
    let profile = tempfile::tempdir().unwrap();
    let mut command = Command::new(browser);
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
    ]);
    command.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
    command.args(["--disable-extensions", "--disable-default-apps", "--enable-logging=stderr", "--dump-dom"]);
    command.arg(format!("--proxy-server=127.0.0.1:{port}")).arg("--proxy-bypass-list=<-loopback>");
    command.arg(format!("--user-data-dir={}", profile.path().display()));
    command.arg(format!("file://{}", page.display()));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut running = Running(command.spawn().unwrap());
    let dom = pieces(running.0.stdout.take().unwrap());
    let said = pieces(running.0.stderr.take().unwrap());
    let start = Instant::now();
    let status = loop {
        if let Some(status) = running.0.try_wait().unwrap() {
            break status;
        }
        let what = page.display();
        assert!(start.elapsed() < PATIENCE, "{} has not opened {what} in {PATIENCE:?}", browser.display());
        sleep(Duration::from_millis(20));
    };
    running.end();
    let (dom, said) = (text(&dom), text(&said));
    assert!(status.success(), "{status}: {said}");
    let console = said.lines().filter(|line| line.contains(":CONSOLE")).map(str::to_owned).collect();
    // What it has asked for last may still be on its way.
    let asked = from_fn(|| asked.recv_timeout(Duration::from_millis(500)).ok());
    Opened { dom, console, asked: asked.filter(|line| !is_its_makers(line)).collect() }
}

/// Browsers ask their maker for this and that, whatever page they show, and for hosts of made-up names without a dot, to learn what network
/// they are in.
fn is_its_makers(request: &str) -> bool {
    let target = request.split_whitespace().nth(1).unwrap_or_default();
    let host = target.trim_start_matches("http://").split(['/', ':']).next().unwrap_or_default();
    let makers = ["google.com", "googleapis.com", "googleusercontent.com", "gstatic.com", "gvt1.com"];
    !host.contains('.') || makers.iter().any(|maker| host.ends_with(maker))
}

/// A report on two modules, one of which several processes have told of: its page and its figures.
fn report() -> (tempfile::TempDir, String, Value) {
    let dir = workplace();
    for _ in 0..2 {
        fill_clip(&open(&dir.path().join("cache"), clip("224")), &["cat", "dog", "horse", "zebra"]);
    }
    let figures = json(dir.path(), &["report", "cache", "--to", "report.html"]);
    let page = fs::read_to_string(dir.path().join("report.html")).unwrap();
    (dir, page, figures)
}

/// How many charts of each name there have to be.
fn expected(figures: &Value) -> [(&'static str, usize); 5] {
    let modules = figures["modules"].as_array().unwrap();
    let grown = |module: &&Value| {
        let steps = module["growth"].as_array().unwrap();
        steps.first().unwrap()["ms"] != steps.last().unwrap()["ms"]
    };
    let outputs = || modules.iter().flat_map(|module| module["outputs"].as_array().unwrap());
    let with = |name: &'static str| outputs().filter(|output| !output[name].is_null()).count();
    assert!(with("norms") > 0 && with("nan") > 0 && with("projection") > 0);
    [
        ("growth", modules.iter().filter(grown).count()),
        ("hit-rates", modules.len()),
        ("norms", with("norms")),
        ("nan", with("nan")),
        ("plane", with("projection")),
    ]
}

/// The drawings of a name.
fn charts<'a>(dom: &'a str, name: &str) -> Vec<&'a str> {
    let begins = format!("data-chart=\"{name}\"");
    dom.split("<svg")
        .skip(1)
        .filter(|svg| svg.contains(&begins))
        .map(|svg| svg.split("</svg>").next().unwrap())
        .collect()
}

#[test]
fn the_page_refers_to_nothing_outside_itself() {
    let (_dir, page, _) = report();
    for reference in [
        "http:", "https:", "src=", "url(", "@import", "<script", "<link", "<iframe", "<object", "<base",
        "file:",
    ] {
        assert!(!page.contains(reference), "{reference}");
    }
    let links = page.split("href=\"").skip(1);
    assert!(links.clone().count() > 0 && links.clone().all(|link| link.starts_with('#')));
    assert!(page.contains(
        "http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\""
    ));
}

#[test]
fn a_browser_shows_every_chart_and_sends_no_request() {
    let Some(browser) = browser_or_skip() else { return };
    let (dir, _, figures) = report();
    let Opened { dom, console, asked } = open_in(&browser, &dir.path().join("report.html"));
    assert!(dom.trim_end().ends_with("</html>"), "{dom}");
    assert_eq!(dom.matches("<section id=").count(), 2);
    for (name, expected) in expected(&figures) {
        let found = charts(&dom, name);
        assert_eq!(found.len(), expected, "{name}");
        for chart in found {
            assert!(chart.contains("role=\"img\"") && chart.contains("aria-label=\""), "{chart}");
            assert!(["<rect", "<path", "<circle"].iter().any(|drawn| chart.contains(drawn)), "{chart}");
            assert!(!chart.contains("=\"NaN"), "{chart}");
        }
    }
    // A bar for each of the processes that have told of their use of a module.
    let bars =
        charts(&dom, "hit-rates").iter().map(|chart| chart.matches("class=\"hit\"").count()).sum::<usize>();
    assert_eq!(bars, 5, "four of `clip_v1`, one of `resnet50_v1`");
    assert_eq!(console, [""; 0]);
    assert_eq!(asked, [""; 0]);
}

#[test]
fn a_page_that_asks_the_network_is_noticed() {
    let Some(browser) = browser_or_skip() else { return };
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.html");
    fs::write(&page, "<!doctype html><title>asks</title><img src=\"http://192.0.2.1/picture.png\">").unwrap();
    let opened = open_in(&browser, &page);
    assert!(opened.asked.iter().any(|line| line.contains("192.0.2.1/picture.png")), "{:?}", opened.asked);
    fs::write(&page, "<!doctype html><meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'\"><p style=\"color: red\">").unwrap();
    assert!(!open_in(&browser, &page).console.is_empty(), "what is refused is told");
}

/// A program that takes a browser's place.
fn pretender(dir: &Path, script: &str) -> PathBuf {
    let path = dir.join("pretender");
    // Written by another process: one that a test beside this starts meanwhile would have it open for writing.
    let write = format!("printf '#!/bin/sh\\n%s\\n' '{script}' > pretender && chmod +x pretender");
    assert!(Command::new("sh").args(["-ec", &write]).current_dir(dir).status().unwrap().success());
    path
}

#[test]
fn what_a_browser_leaves_behind_is_ended_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let leaves = pretender(dir.path(), "(sleep 20; echo :CONSOLE late >&2) & echo shown");
    let opened = open_in(&leaves, Path::new("/page.html"));
    assert_eq!((opened.dom.as_str(), opened.console), ("shown\n", Vec::new()));
}

#[test]
fn a_program_that_only_has_the_name_of_a_browser_is_none() {
    let dir = tempfile::tempdir().unwrap();
    assert!(!runs(&dir.path().join("absent")));
    assert!(!runs(&pretender(dir.path(), "echo install another; exit 1")));
    assert!(runs(&pretender(dir.path(), "echo 1.0")));
}

#[test]
fn a_connection_on_which_nothing_is_said_does_not_keep_others_waiting() {
    let (port, asked) = proxy();
    let _silent = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut other = TcpStream::connect(("127.0.0.1", port)).unwrap();
    other.write_all(b"GET http://192.0.2.1/ HTTP/1.1\r\n").unwrap();
    let first = asked.recv_timeout(PATIENCE).unwrap();
    assert!(first.contains("192.0.2.1"), "{first:?}");
}
