//! Coverage-guided fuzzing of everything that decodes bytes: `fuzz/`, built by xtask with flags of its own.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tcx_engine_tests::{Ended, Findings, Worker};

use crate::arguments::Arguments;
use crate::budget::Budget;
use crate::machine::{cores, target};
use crate::outcome::Outcome;

/// The limits for a decoder and one input, in megabytes and in seconds of a clock that also runs
/// while another program has the processor: an input takes milliseconds.
const LIMITS: [&str; 2] = ["-timeout=60", "-rss_limit_mb=2048"];

pub(crate) fn run(budget: &Budget, arguments: &Arguments, outcome: &mut Outcome) {
    let Some(fuzzer) = &arguments.fuzzer else {
        return outcome
            .skip("the fuzzer was not built (it needs a C++ compiler; `cargo xtask stress` prints why)");
    };
    let decoders = decoders();
    let at_once = cores().min(decoders.len());
    let rounds = decoders.len().div_ceil(at_once) as u32;
    let time = budget.time() / rounds;
    for some in decoders.chunks(at_once) {
        let fuzzers: Vec<(&String, Worker)> =
            some.iter().map(|decoder| (decoder, start(fuzzer, decoder, time))).collect();
        for (decoder, fuzzer) in fuzzers {
            match fuzzer.end_within(time + Duration::from_mins(1)) {
                Some(ended) => judge(decoder, &ended, outcome),
                None => outcome.wrong(format!("{decoder}: it hangs")),
            }
        }
    }
}

/// The folders of the corpus are named by the decoders.
fn decoders() -> Vec<String> {
    let folders = std::fs::read_dir(corpus()).unwrap().map(|folder| folder.unwrap().file_name());
    let mut decoders: Vec<String> = folders.map(|name| name.into_string().unwrap()).collect();
    decoders.sort();
    decoders
}

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

fn start(fuzzer: &Path, decoder: &str, time: Duration) -> Worker {
    // The next run starts from the inputs that this one finds.
    let (found, crashes) = (target().join("corpus").join(decoder), target().join("crashes"));
    for folder in [&found, &crashes] {
        std::fs::create_dir_all(folder).unwrap();
    }
    let mut artifacts = OsString::from("-artifact_prefix=");
    artifacts.push(crashes.join(format!("{decoder}-")));
    let mut command = Command::new(fuzzer);
    command
        .env("TCX_DECODER", decoder)
        .args(LIMITS)
        .arg(format!("-max_total_time={}", time.as_secs().max(1)))
        .args(["-print_final_stats=1", "-max_len=16384", "-verbosity=1"])
        .arg(artifacts)
        .arg(found)
        .arg(corpus().join(decoder));
    Worker::start(&mut command)
}

fn judge(decoder: &str, ended: &Ended, outcome: &mut Outcome) {
    let lines = || ended.complaints.lines();
    let tried =
        lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:")?.trim().parse().ok());
    let covered = lines().rev().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "cov:")?;
        words.get(at + 1)?.parse::<u64>().ok()
    });
    let mut findings = Findings::default();
    if !ended.status.success() {
        // The panic and the path of the input; not the whole log.
        let shown: Vec<&str> = lines().filter(|line| is_of_crash(line)).take(6).collect();
        findings.wrong.push(format!("{decoder}: {}: {}", ended.status, shown.join(" | ")));
    }
    outcome.tried_many(tried.unwrap_or(1), findings);
    outcome.figure(&format!("edges of {decoder}"), covered.unwrap_or(0));
}

fn is_of_crash(line: &str) -> bool {
    ["panicked", "ERROR", "Test unit written", "assertion", "bytes were held"]
        .iter()
        .any(|word| line.contains(word))
}
