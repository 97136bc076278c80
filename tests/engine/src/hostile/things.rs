//! Things that are not what their names say.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode};

use super::{Place, Rows, Trap, trap};

const IDENTITY: &str = "change-00000000000000000000";
/// A name of each kind of file and folder, and what becomes of the rows if something under it cannot be read.
const NAMES: [(&str, Rows); 7] = [
    ("seg-0123456789abcdef0123456789abcdef-0123456789abcdef.arrow", Rows::Kept),
    ("run-0123456789abcdef0123456789abcdef.idx", Rows::Kept),
    ("tmp-0123456789abcdef0123456789abcdef", Rows::Kept),
    ("merged-00000000000000000001", Rows::Kept),
    ("sessions", Rows::Kept),
    // A change that cannot be verified is a tombstone for everything before it.
    ("change-00000000000000000001", Rows::Right),
    (IDENTITY, Rows::Right),
];

/// Makes something under a name; the second path is the outside.
type Thing = (&'static str, fn(&Path, &Path));

const THINGS: [Thing; 9] = [
    ("a link to a file outside", |path, outside| symlink(outside.join("secret"), path).unwrap()),
    ("a link to a folder outside", |path, outside| symlink(outside.join("folder"), path).unwrap()),
    ("a link to nothing outside", |path, outside| symlink(outside.join("new"), path).unwrap()),
    ("a link with dots", |path, _| symlink("../../outside/secret", path).unwrap()),
    ("a folder", |path, _| fs::create_dir_all(path.join("inside")).unwrap()),
    ("a pipe", |path, _| make_node(path, FileType::Fifo)),
    ("a socket", |path, _| drop(UnixListener::bind(path).unwrap())),
    ("an empty file", |path, _| drop(File::create(path).unwrap())),
    ("a file of nothing but holes", |path, _| holes(path)),
];

fn make_node(path: &Path, kind: FileType) {
    rustix::fs::mknodat(CWD, path, kind, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

/// As large as the file system allows, up to 8 EiB: nothing may read it all, or count it wrong.
fn holes(path: &Path) {
    let file = File::create(path).unwrap();
    let mut bytes = i64::MAX as u64;
    while file.set_len(bytes).is_err() {
        bytes /= 2;
    }
}

fn replace(path: &Path, make: impl Fn(&Path)) {
    if path.is_dir() {
        fs::remove_dir_all(path).unwrap();
    } else if path.exists() {
        fs::remove_file(path).unwrap();
    }
    make(path);
}

pub(super) fn traps() -> Vec<Trap> {
    let mut traps = Vec::new();
    for (name, rows) in NAMES {
        for (thing, make) in THINGS {
            traps.push(trap(format!("{thing} as {name}"), rows, move |place| {
                // The path of the real folder is longer than a socket's path may be.
                let outside = place.outside();
                in_folder(&place.folder(), name, |path| make(path, &outside));
            }));
        }
    }
    for (thing, make) in THINGS {
        traps.push(trap(format!("{thing} as the module's folder"), Rows::Right, move |place| {
            let outside = place.outside();
            in_folder(&place.cache(), "m_v1", |path| make(path, &outside));
        }));
    }
    traps.push(trap("names that are not tcx's", Rows::Kept, odd_names));
    traps
}

/// Paths of sockets are short: the current folder of this process is not changed, the folder's own handle is used.
fn in_folder(folder: &Path, name: &str, make: impl Fn(&Path)) {
    let handle = File::open(folder).unwrap();
    let short = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&handle));
    replace(&Path::new(&short).join(name), make);
}

fn odd_names(place: &Place) {
    let long = format!("seg-{}", "a".repeat(251));
    let names: [&[u8]; 12] = [
        b"change-18446744073709551615",
        b"change-99999999999999999999",
        b"merged-18446744073709551615",
        b"change-1",
        b"seg-..-...arrow",
        b"seg-0123456789ABCDEF0123456789abcdef-0123456789abcdef.arrow",
        b"run-.idx",
        b"...",
        b" ",
        b"change-\n0000000000000000001",
        b"seg-\xff\xfe",
        long.as_bytes(),
    ];
    for name in names {
        fs::write(place.folder().join(OsStr::from_bytes(name)), "odd").unwrap();
    }
}
