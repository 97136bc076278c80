//! `tcx push`, `pull` and `sync`: copies modules between a cache directory and an object store.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use tcx_remote::{Bucket, ClientOptions, Copied, Location};

use crate::args::Copying;
use crate::cache;
use crate::cache::store::failure;
use crate::console::output::{BAD, Output, Report};
use crate::console::progress;
use crate::failure::{Code, Failure, Result, Verdict};
use crate::text::human;

/// Copies one module; the function gets the bytes that were copied and those to copy.
type Copy<'a> = dyn Fn(&str, &mut (dyn FnMut(u64, u64) + Send)) -> io::Result<Copied> + 'a;

#[derive(Debug, Serialize)]
struct Done {
    modules: Vec<Module>,
    requests: Requests,
}

#[derive(Debug, Serialize)]
struct Module {
    module: String,
    /// `push` or `pull`.
    direction: &'static str,
    files: u64,
    bytes: u64,
    present: u64,
    left_out: Vec<LeftOut>,
}

#[derive(Debug, Serialize)]
struct LeftOut {
    file: String,
    why: String,
}

/// What the store has charged for, in two groups as most do.
#[derive(Debug, Serialize)]
struct Requests {
    puts_and_lists: u64,
    gets: u64,
    bytes_sent: u64,
    bytes_received: u64,
}

pub(super) fn push(copying: &Copying, output: &Output) -> Result<Verdict> {
    let bucket = connect(copying)?;
    let modules = cache::chosen(&copying.dir, copying.module.as_deref())?;
    let mut done = Vec::new();
    push_all(&bucket, &copying.dir, modules, &mut done)?;
    show(done, &bucket, output)
}

pub(super) fn pull(copying: &Copying, output: &Output) -> Result<Verdict> {
    let bucket = connect(copying)?;
    let modules = modules_of(&bucket, copying.module.as_deref())?;
    if modules.is_empty() {
        return Err(Failure::new(Code::NotFound, format!("no modules in {}", bucket.url())));
    }
    let mut done = Vec::new();
    pull_all(&bucket, &copying.dir, modules, &mut done)?;
    show(done, &bucket, output)
}

pub(super) fn sync(copying: &Copying, output: &Output) -> Result<Verdict> {
    let bucket = connect(copying)?;
    let chosen = copying.module.as_deref();
    let there = modules_of(&bucket, chosen)?;
    let here = if copying.dir.exists() { cache::place::any(&copying.dir)? } else { Vec::new() };
    let here: Vec<_> = here.into_iter().filter(|own| chosen.is_none_or(|chosen| chosen == own)).collect();
    if here.is_empty() && there.is_empty() {
        let message = format!("no modules in {} and {}", copying.dir.display(), bucket.url());
        return Err(Failure::new(Code::NotFound, message));
    }
    let mut done = Vec::new();
    // First what others have added: what is sent then belongs to the changes that are known there.
    pull_all(&bucket, &copying.dir, there, &mut done)?;
    push_all(&bucket, &copying.dir, here, &mut done)?;
    show(done, &bucket, output)
}

fn connect(copying: &Copying) -> Result<Bucket> {
    cache::place::check_directory(&copying.dir)?;
    let mut options = ClientOptions::default();
    if let Some(deadline) = copying.deadline {
        options = options.deadline(deadline);
    }
    match Location::parse(&copying.url).map_err(failure)? {
        Location::Store(url) => Bucket::new(url, options).map_err(failure),
        Location::Directory(path) => Err(Failure::usage(format!(
            "{} is a directory, expected the URL of an object store, such as s3://bucket/prefix; copy directories with `cp` or `rsync`, or \
             add the rows of one to another with `tcx merge`",
            path.display()
        ))),
    }
}

fn modules_of(bucket: &Bucket, chosen: Option<&str>) -> Result<Vec<String>> {
    let mut modules = tcx_remote::modules(bucket).map_err(failure)?;
    modules.retain(|own| chosen.is_none_or(|chosen| chosen == own));
    Ok(modules)
}

fn push_all(bucket: &Bucket, dir: &Path, modules: Vec<String>, done: &mut Vec<Module>) -> Result<()> {
    let push = |module: &str, progress: &mut (dyn FnMut(u64, u64) + Send)| {
        tcx_remote::push(dir, bucket, module, progress)
    };
    copy(("push", "sending"), modules, &push, done)
}

fn pull_all(bucket: &Bucket, dir: &Path, modules: Vec<String>, done: &mut Vec<Module>) -> Result<()> {
    let pull = |module: &str, progress: &mut (dyn FnMut(u64, u64) + Send)| {
        tcx_remote::pull(bucket, dir, module, progress)
    };
    copy(("pull", "receiving"), modules, &pull, done)
}

fn copy(
    (direction, verb): (&'static str, &str),
    modules: Vec<String>,
    copy: &Copy<'_>,
    done: &mut Vec<Module>,
) -> Result<()> {
    for module in modules {
        let bar = progress::bytes(format!("{verb} {module}"));
        let copied = copy(&module, &mut progress::follow(&bar));
        bar.finish_and_clear();
        let Copied { files, bytes, present, left_out, .. } = copied.map_err(failure)?;
        let left_out = left_out.into_iter().map(|(file, why)| LeftOut { file, why }).collect();
        done.push(Module { module, direction, files, bytes, present, left_out });
    }
    Ok(())
}

fn show(modules: Vec<Module>, bucket: &Bucket, output: &Output) -> Result<Verdict> {
    let asked = bucket.requests();
    let requests = Requests {
        puts_and_lists: asked.puts + asked.lists,
        gets: asked.gets + asked.heads,
        bytes_sent: asked.sent,
        bytes_received: asked.received,
    };
    let is_whole = modules.iter().all(|module| module.left_out.is_empty());
    output.show(&Done { modules, requests })?;
    Ok(Verdict::good_if(is_whole))
}

impl Report for Done {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        for Module { module, direction, files, bytes, present, left_out } in &self.modules {
            let verb = if *direction == "push" { "sent" } else { "received" };
            let (copied, there) = (human::counted(*files, "file"), human::count(*present));
            writeln!(to, "{module}: {verb} {copied} ({}), {there} were there", human::size(*bytes))?;
            for LeftOut { file, why } in left_out {
                writeln!(to, "  {file}: {BAD}left out{BAD:#}, {why}")?;
            }
        }
        let Requests { puts_and_lists, gets, .. } = &self.requests;
        writeln!(
            to,
            "{} and {} in all",
            human::counted(*puts_and_lists, "PUT or LIST request"),
            human::counted(*gets, "GET request")
        )
    }
}
