//! The report is opened in a browser: its charts are in the page, and nothing in it asks the network.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
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
    found.into_iter().find(|program| program.is_file())
}

fn is_required() -> bool {
    let asked = std::env::var("TCX_REQUIRE").unwrap_or_default();
    asked.split(',').any(|name| matches!(name.trim(), "chromium" | "all"))
}

/// The browser; `None` where there is none and nobody requires one.
fn browser_or_skip() -> Option<PathBuf> {
    let found = browser();
    if found.is_none() {
        let why = "chromium is not installed (nor chromium-browser, google-chrome): the report is not opened";
        assert!(!is_required(), "{why}");
        eprintln!("skipped: {why}");
    }
    found
}

/// Opens a page; whatever it asks for goes to a proxy, which only writes it down.
fn open_in(browser: &Path, page: &Path) -> Opened {
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = proxy.local_addr().unwrap().port();
    let (ask, asked) = channel();
    // It ends with the test.
    std::thread::spawn(move || {
        for connection in proxy.incoming().map_while(Result::ok) {
            let mut line = String::new();
            let _ = BufReader::new(connection).read_line(&mut line);
            let _ = ask.send(line);
        }
    });
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
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let read = std::thread::spawn(move || {
        let mut text = Vec::new();
        err.read_to_end(&mut text).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    });
    let dom = std::thread::spawn(move || {
        let mut text = Vec::new();
        out.read_to_end(&mut text).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    });
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("{} has not opened {} in {PATIENCE:?}", browser.display(), page.display());
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let (dom, said) = (dom.join().unwrap(), read.join().unwrap());
    assert!(status.success(), "{status}: {said}");
    let console = said.lines().filter(|line| line.contains(":CONSOLE")).map(str::to_owned).collect();
    Opened { dom, console, asked: asked.try_iter().filter(|line| !is_its_makers(line)).collect() }
}

/// Browsers ask their maker for this and that, whatever page they show, and for hosts of made-up names without a dot, to learn what network
/// they are in.
fn is_its_makers(request: &str) -> bool {
    let target = request.split_whitespace().nth(1).unwrap_or_default();
    let host = target.trim_start_matches("http://").split(['/', ':']).next().unwrap_or_default();
    let makers = ["google.com", "googleapis.com", "gstatic.com", "gvt1.com"];
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
fn a_browser_shows_every_chart_and_asks_nobody_for_anything() {
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
