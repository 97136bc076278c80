//! `cargo xtask package`: the packages that are published are packed, and each is built from what was packed.

use std::process::Command;

use crate::failure::Result;
use crate::process;
use crate::provision::{libtorch, toolchain};
use crate::workspace::{Workspace, cargo};

/// The packages for the public registry, in the order in which they are published.
pub(crate) const PUBLISHED: [&str; 6] =
    ["tcx-derive", "tcx-store", "tcx-remote", "tcx-sql", "tcx-cli", "tcx-cache"];

/// Packs all packages and builds each. `cargo xtask test` packs them too, and builds none, which would take minutes.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    toolchain::require_compiler()?;
    eprintln!("{}", libtorch::provide(workspace)?);
    let mut package = cargo("package");
    package.current_dir(workspace.root());
    pack(&mut package);
    // A packed manifest has no profiles. With those of the workspace, dependencies that the tests were built with serve again.
    package.arg("--config").arg(workspace.root().join("Cargo.toml"));
    process::run(&mut package, "packing the packages and building them")
}

/// Completes a `cargo package`, which may run before the sources are committed.
pub(crate) fn pack(package: &mut Command) {
    package.arg("--allow-dirty");
    for name in PUBLISHED {
        package.args(["--package", name]);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    use serde_json::Value;

    use super::*;

    /// What Cargo says of each member of the workspace.
    fn members(workspace: &Workspace) -> Vec<Value> {
        let mut metadata = cargo("metadata");
        metadata.args(["--no-deps", "--format-version", "1"]).current_dir(workspace.root());
        let text = process::output(&mut metadata).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["packages"].as_array().unwrap().clone()
    }

    fn published(workspace: &Workspace) -> Vec<Value> {
        members(workspace).into_iter().filter(|member| member["publish"].is_null()).collect()
    }

    fn folder(package: &Value) -> &Path {
        Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap()
    }

    /// The files that are packed, without those that Cargo makes.
    fn packed(workspace: &Workspace, name: &str) -> BTreeSet<String> {
        let mut list = cargo("package");
        list.args(["--list", "--allow-dirty", "--quiet", "--package", name]).current_dir(workspace.root());
        let made = [".cargo_vcs_info.json", "Cargo.lock", "Cargo.toml.orig"];
        let files = process::output(&mut list).unwrap();
        files.lines().filter(|file| !made.contains(file)).map(str::to_owned).collect()
    }

    #[test]
    fn all_other_packages_stay_in_this_repository() {
        let names: BTreeSet<String> = published(&Workspace::find().unwrap())
            .iter()
            .map(|package| package["name"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(names, PUBLISHED.map(str::to_owned).into());
    }

    #[test]
    fn the_library_and_the_command_keep_their_name() {
        let members = members(&Workspace::find().unwrap());
        let target = |package: &str, kind: &str| {
            let member = members.iter().find(|member| member["name"] == package).unwrap();
            let targets = member["targets"].as_array().unwrap();
            targets.iter().find(|target| target["kind"][0] == kind).unwrap()["name"].clone()
        };
        assert_eq!(target("tcx-cache", "lib"), "tcx");
        assert_eq!(target("tcx-cli", "bin"), "tcx");
    }

    #[test]
    fn a_registry_finds_what_it_shows_of_each_package() {
        for package in published(&Workspace::find().unwrap()) {
            let name = &package["name"];
            for field in ["description", "documentation", "license", "readme", "rust_version"] {
                assert!(package[field].is_string(), "{name} has no `{field}`");
            }
            for (field, most) in [("keywords", 5), ("categories", 5)] {
                let count = package[field].as_array().unwrap().len();
                assert!((1..=most).contains(&count), "{name}: {count} {field}");
            }
            let has_library = package["targets"][0]["kind"][0] == "lib";
            let settings = &package["metadata"]["docs"]["rs"];
            assert!(settings.is_object() || !has_library, "{name} has no settings for docs.rs");
        }
    }

    #[test]
    fn each_package_has_its_sources_its_licences_and_a_readme() {
        let workspace = Workspace::find().unwrap();
        for package in published(&workspace) {
            let name = package["name"].as_str().unwrap();
            let files = packed(&workspace, name);
            for file in ["Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT", "README.md"] {
                assert!(files.contains(file), "{name} lacks {file}");
            }
            for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
                let text = |folder: &Path| fs::read_to_string(folder.join(licence)).unwrap();
                assert_eq!(text(folder(&package)), text(workspace.root()), "{name}: {licence}");
            }
            let other = files.iter().find(|file| !file.starts_with("src/") && file.contains('/'));
            assert_eq!(other, None, "{name}");
        }
    }

    /// The files that a source takes in when it is compiled.
    fn included(source: &str) -> impl Iterator<Item = &str> {
        ["include_str!(\"", "include_bytes!(\"", "include!(\"", "path = \""]
            .into_iter()
            .flat_map(|start| source.split(start).skip(1).filter_map(|rest| rest.split('"').next()))
    }

    #[test]
    fn no_package_takes_in_a_file_that_it_does_not_have() {
        let workspace = Workspace::find().unwrap();
        let mut count = 0;
        for package in published(&workspace) {
            let files = packed(&workspace, package["name"].as_str().unwrap());
            let there: BTreeSet<PathBuf> =
                files.iter().map(|file| folder(&package).join(file).canonicalize().unwrap()).collect();
            for file in there.iter().filter(|file| file.extension().is_some_and(|ending| ending == "rs")) {
                let source = fs::read_to_string(file).unwrap();
                for path in included(&source) {
                    let path = file.parent().unwrap().join(path);
                    let is_there = path.canonicalize().is_ok_and(|path| there.contains(&path));
                    assert!(is_there, "{}: {} is not in the package", file.display(), path.display());
                    count += 1;
                }
            }
        }
        assert!(count > 0);
    }
}
