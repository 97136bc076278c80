//! Where the near tier is if nothing else is said, and where it should not be.

use std::env;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use tcx_store::unstable::directory;

use crate::error::invalid;

/// The directory of the near tier for programs whose users do not name one: that of the environment variable `TCX_NEAR_TIER`, else
/// `tcx/near` in the user's directory for caches. This is `$XDG_CACHE_HOME` or `~/.cache`, `~/Library/Caches` on macOS, and
/// `%LOCALAPPDATA%` on Windows. Nothing is made.
///
/// ```no_run
/// println!("{}", tcx_remote::default_near_tier()?.display());
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// Returns an error that names the variable if the environment does not say where the user's directories are.
pub fn default_near_tier() -> io::Result<PathBuf> {
    let user = if cfg!(windows) {
        env::var_os("LOCALAPPDATA").map(PathBuf::from)
    } else if cfg!(target_os = "macos") {
        home().map(|home| home.join("Library/Caches"))
    } else {
        let xdg = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        xdg.filter(|dir| dir.is_absolute()).or_else(|| home().map(|home| home.join(".cache")))
    };
    of_environment(env::var_os("TCX_NEAR_TIER"), user)
}

/// The most bytes that copies in the near tier may have, for programs whose users do not say it: those of the environment variable
/// `TCX_NEAR_BYTES`, a number that may end in `K`, `M`, `G` or `T` (each 1024 times the one before). `None` if it is not set: then
/// the disk decides.
///
/// # Errors
///
/// Returns an error that names the variable if its value is no such number.
pub fn default_near_bytes() -> io::Result<Option<u64>> {
    bytes_of_environment(env::var_os("TCX_NEAR_BYTES"))
}

fn bytes_of_environment(said: Option<OsString>) -> io::Result<Option<u64>> {
    let Some(said) = said.filter(|said| !said.is_empty()) else { return Ok(None) };
    let bytes = said.to_str().and_then(|said| {
        let digits = said.trim_end_matches(['K', 'M', 'G', 'T']);
        let power = match &said[digits.len()..] {
            "" => 0,
            "K" => 1,
            "M" => 2,
            "G" => 3,
            "T" => 4,
            _ => return None,
        };
        digits.parse::<u64>().ok()?.checked_mul(1 << (10 * power))
    });
    let refused = || {
        let said = said.display();
        invalid(format!("TCX_NEAR_BYTES is `{said}`, expected a number of bytes, such as 500G"))
    };
    bytes.map(Some).ok_or_else(refused)
}

/// Users of services have `/`, or nothing.
fn home() -> Option<PathBuf> {
    env::home_dir().filter(|home| home.is_absolute() && home.parent().is_some())
}

fn of_environment(named: Option<OsString>, user: Option<PathBuf>) -> io::Result<PathBuf> {
    if let Some(named) = named.filter(|named| !named.is_empty()).map(PathBuf::from) {
        // Programs with other current directories would not find what waits there.
        return if named.is_absolute() {
            Ok(named)
        } else {
            let what = format!("TCX_NEAR_TIER is `{}`, expected an absolute path", named.display());
            Err(invalid(what))
        };
    }
    let dir = user.map(|user| user.join("tcx").join("near"));
    dir.ok_or_else(|| {
        invalid(
            "no directory for the near tier, which keeps copies of what an object store has: the environment names no home directory; pass \
             a directory on a disk of this machine, or set TCX_NEAR_TIER",
        )
    })
}

/// Reports a near tier that several machines may share, or whose files may vanish while they are mapped.
pub(crate) fn warn_of_network(near: &Path) {
    if directory(near.to_owned()).is_remote() {
        tracing::warn!(
            "the near tier {} is on a network file system: use a directory on a disk of this machine",
            near.display()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_of_the_near_tier_is_what_the_variable_says_else_that_of_the_disk() {
        let of = |said: &str| bytes_of_environment(Some(said.into()));
        assert_eq!(bytes_of_environment(None).unwrap(), None);
        assert_eq!((of("").unwrap(), of("0").unwrap(), of("12").unwrap()), (None, Some(0), Some(12)));
        assert_eq!((of("3K").unwrap(), of("500G").unwrap()), (Some(3 << 10), Some(500 << 30)));
        for said in ["G", "1.5G", "1GG", "-1", "1 G", "99999999999T"] {
            let refused = of(said).unwrap_err().to_string();
            assert!(refused.contains("TCX_NEAR_BYTES") && refused.contains(said), "{refused}");
        }
    }

    #[test]
    fn the_near_tier_is_where_the_variable_says_else_in_the_caches_of_the_user() {
        let user = Some(PathBuf::from("/home/ada/.cache"));
        let of = |named: &str, user| of_environment(Some(named.into()), user);
        assert_eq!(of("/fast/near", user.clone()).unwrap(), Path::new("/fast/near"));
        assert!(of("~/near", user.clone()).unwrap_err().to_string().contains("`~/near`"));
        assert_eq!(of("", user.clone()).unwrap(), Path::new("/home/ada/.cache/tcx/near"));
        assert_eq!(of_environment(None, user).unwrap(), Path::new("/home/ada/.cache/tcx/near"));
        let refused = of("", None).unwrap_err().to_string();
        assert!(refused.contains("set TCX_NEAR_TIER"), "{refused}");
    }
}
