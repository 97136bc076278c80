//! The check of the rooms: in each crate no circle between the folders and files at its root, and no file at the root that
//! is not in its list.
//!
//! A room is the first segment of a module's path: `crate::read::copy` is in the room `read`. Code that only tests
//! compile may use every room.

mod graph;
mod source;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::workspace::Workspace;
use graph::Graph;
pub(super) use source::{is_for_tests, is_test_file, len_of_item};

/// Each crate, with the files that may lie at its root.
const CRATES: &[(&str, &[&str])] = &[
    ("benches", &["machine.rs", "main.rs", "settings.rs"]),
    (
        "benches/engine",
        &[
            "cold.rs",
            "counts.rs",
            "disks.rs",
            "figures.rs",
            "hit_rates.rs",
            "main.rs",
            "remote.rs",
            "settings.rs",
            "workload.rs",
        ],
    ),
    ("tcx", &["error.rs", "lib.rs", "macros.rs", "private.rs"]),
    ("tcx-cli", &["args.rs", "failure.rs", "lib.rs", "main.rs"]),
    ("tcx-derive", &["errors.rs", "lib.rs", "options.rs", "runtime.rs", "tests.rs", "types.rs"]),
    ("tcx-python", &["command.rs", "contents.rs", "lib.rs", "weights.rs"]),
    ("tcx-remote", &["error.rs", "lib.rs", "options.rs", "url.rs"]),
    ("tcx-sql", &["cache.rs", "database.rs", "error.rs", "lib.rs"]),
    ("tcx-store", &["error.rs", "lib.rs", "options.rs"]),
    ("xtask", &["cli.rs", "failure.rs", "main.rs", "process.rs", "workspace.rs"]),
];

/// These hold no product code: a test or an example may use whatever it needs.
fn is_exempt(folder: &str) -> bool {
    ["tests", "examples"].iter().any(|exempt| Path::new(folder).starts_with(exempt))
}

/// What is wrong with the rooms of the crate in `folder`: one entry for each finding.
fn findings(checkout: &Path, folder: &str, listed: &[&str]) -> Vec<String> {
    let sources = Path::new(folder).join("src");
    let mut findings = stray_files(checkout, &sources, listed);
    for root_file in ["lib.rs", "main.rs"].map(|name| sources.join(name)) {
        if checkout.join(&root_file).is_file() {
            let graph = Graph::read(checkout, &root_file);
            findings.extend(graph.to_root.iter().map(|path| {
                format!(
                    "{path}, which {} defines: move it into a file of its own or a room",
                    root_file.display()
                )
            }));
            findings
                .extend(graph.circles().iter().map(|circle| format!("{folder}: {}", graph.describe(circle))));
        }
    }
    findings
}

fn stray_files(checkout: &Path, sources: &Path, listed: &[&str]) -> Vec<String> {
    let entries = fs::read_dir(checkout.join(sources)).unwrap();
    let files = entries.map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let found: BTreeSet<String> =
        files.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect();
    let stray = found.iter().filter(|name| !listed.contains(&name.as_str())).map(|name| {
        let file = sources.join(name);
        format!(
            "{}: a stray file at the root of its crate: move it into a room, or list it in {}",
            file.display(),
            file!()
        )
    });
    let gone = listed.iter().filter(|name| !found.contains(**name)).map(|name| {
        let file = sources.join(name);
        format!("{}: no such file, but {} lists it: remove it from the list", file.display(), file!())
    });
    stray.chain(gone).collect()
}

#[test]
fn every_crate_of_the_workspace_is_checked() {
    let manifest = fs::read_to_string(Workspace::find().unwrap().root().join("Cargo.toml")).unwrap();
    let members = manifest.split("members = [").nth(1).unwrap().split(']').next().unwrap();
    let members: BTreeSet<&str> =
        members.split('"').skip(1).step_by(2).filter(|member| !is_exempt(member)).collect();
    let checked: BTreeSet<&str> = CRATES.iter().map(|(folder, _)| *folder).collect();
    assert_eq!(checked, members, "list the crate in CRATES, with the files at its root");
}

#[test]
fn no_crate_has_a_circle_of_rooms_or_a_stray_file() {
    let workspace = Workspace::find().unwrap();
    let findings: Vec<String> =
        CRATES.iter().flat_map(|(folder, listed)| findings(workspace.root(), folder, listed)).collect();
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

/// The findings in a crate of these files.
fn found_in(listed: &[&str], files: &[(&str, &str)]) -> Vec<String> {
    let checkout = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let file = checkout.path().join("house/src").join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    findings(checkout.path(), "house", listed)
}

const ROOT: (&str, &str) = ("lib.rs", "mod cellar;\nmod kitchen;\npub use cellar::wine::Bottle;\n");

#[test]
fn a_circle_is_refused_edge_by_edge() {
    let found = found_in(
        &["lib.rs"],
        &[
            ROOT,
            ("cellar/mod.rs", "pub mod wine;\n"),
            (
                "cellar/wine.rs",
                "pub struct Bottle;\n\nfn open() { log(\"{}\", crate::kitchen::CORKSCREW); }\n",
            ),
            ("kitchen/mod.rs", "use std::fmt;\nuse crate::{\n    cellar::{self, wine::Bottle},\n};\n"),
        ],
    );
    let [circle] = &found[..] else { panic!("{found:?}") };
    assert!(circle.contains("cellar uses kitchen in house/src/cellar/wine.rs:3\n"), "{circle}");
    assert!(circle.contains("kitchen uses cellar in house/src/kitchen/mod.rs:3\n"), "{circle}");
}

#[test]
fn super_paths_and_names_that_the_root_passes_on_are_edges() {
    let found = found_in(
        &["kitchen.rs", "lib.rs"],
        &[
            ROOT,
            ("cellar/mod.rs", "pub mod wine;\n"),
            ("cellar/wine.rs", "pub struct Bottle(super::super::kitchen::Cork);\n"),
            ("kitchen.rs", "pub struct Cork;\nmod glass {\n    use crate::Bottle;\n}\n"),
        ],
    );
    let [circle] = &found[..] else { panic!("{found:?}") };
    assert!(circle.contains("cellar uses kitchen in house/src/cellar/wine.rs:1\n"), "{circle}");
    assert!(circle.contains("kitchen uses cellar in house/src/kitchen.rs:3\n"), "{circle}");
}

#[test]
fn code_for_tests_may_use_every_room() {
    let found = found_in(
        &["lib.rs"],
        &[
            ("lib.rs", "mod cellar;\nmod kitchen;\n#[cfg(any(test, fuzzing))]\nmod testing;\n"),
            (
                "cellar/mod.rs",
                "#[cfg(test)]\nuse crate::{kitchen::Spoon, testing::Taster};\n\
                 #[cfg(all(test, unix))]\npub fn taste<A, B>(a: A) -> Result<A, B> { crate::kitchen::taste(a) }\n\
                 #[cfg(test)]\n#[expect(unused)]\nmod tests;\n\
                 pub(in crate::kitchen) struct Bottle { #[cfg(test)] spoon: crate::kitchen::Spoon, full: bool }\n",
            ),
            ("kitchen/mod.rs", "mod tests_of_it;\nuse crate::cellar::Bottle;\n"),
            ("kitchen/tests_of_it.rs", "#![cfg(test)]\nuse crate::testing::Taster;\n"),
        ],
    );
    assert_eq!(found, [""; 0]);
}

#[test]
fn what_is_compiled_without_tests_counts() {
    let cellar = "#[cfg(not(test))]\nuse crate::kitchen::Spoon;\n#[cfg(test)]\nmod tests {}\nuse super::kitchen::Cork;\n";
    let kitchen = "use crate::cellar::Bottle;\n";
    let found = found_in(&["lib.rs"], &[ROOT, ("cellar/mod.rs", cellar), ("kitchen/mod.rs", kitchen)]);
    let [circle] = &found[..] else { panic!("{found:?}") };
    assert!(circle.contains("cellar/mod.rs:2, house/src/cellar/mod.rs:5"), "{circle}");
}

#[test]
fn a_stray_file_is_refused() {
    let found = found_in(
        &["lib.rs", "roof.rs"],
        &[("lib.rs", "mod cellar;\nmod attic;\n"), ("cellar/mod.rs", ""), ("attic.rs", "")],
    );
    let [stray, gone] = &found[..] else { panic!("{found:?}") };
    assert!(
        stray.starts_with("house/src/attic.rs: a stray file") && stray.contains("move it into a room"),
        "{stray}"
    );
    assert!(gone.starts_with("house/src/roof.rs: no such file"), "{gone}");
}

#[test]
fn a_macro_belongs_to_the_room_that_defines_it_and_its_expansion_to_none() {
    let cellar = "#[macro_export]\nmacro_rules! bottle {\n    () => { $crate::kitchen::Cork };\n}\n";
    let kitchen = "pub use crate::bottle;\n";
    let files = |cellar| [ROOT, ("cellar/mod.rs", cellar), ("kitchen/mod.rs", kitchen)];
    assert_eq!(found_in(&["lib.rs"], &files(cellar)), [""; 0]);
    let found = found_in(&["lib.rs"], &files(&format!("{cellar}fn cork() {{ crate::kitchen::cork() }}\n")));
    let [circle] = &found[..] else { panic!("{found:?}") };
    assert!(circle.contains("kitchen uses cellar in house/src/kitchen/mod.rs:1\n"), "{circle}");
}

#[test]
fn what_the_root_file_defines_is_refused_in_rooms() {
    let found = found_in(
        &["lib.rs"],
        &[
            ("lib.rs", "mod cellar;\nstruct House;\n"),
            ("cellar/mod.rs", "use super::House;\ncrate::check!();\n"),
        ],
    );
    let [path] = &found[..] else { panic!("{found:?}") };
    assert!(
        path.starts_with("house/src/cellar/mod.rs:1 uses `crate::House`, which house/src/lib.rs defines"),
        "{path}"
    );
}
