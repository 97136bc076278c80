//! Where a cache is: in a directory, or under a prefix of an object store.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use object_store::ObjectStoreScheme;
use tcx_store::url_scheme;
use url::Url;

use crate::error::invalid;

/// Where a cache is.
///
/// ```
/// use tcx_remote::Location;
///
/// assert!(matches!(Location::parse("./cache")?, Location::Directory(_)));
/// assert!(matches!(Location::parse("file:///data/cache")?, Location::Directory(_)));
/// let Location::Store(url) = Location::parse("s3://features/imagenet/")? else { panic!() };
/// assert_eq!(url.to_string(), "s3://features/imagenet");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A directory of a file system.
    Directory(PathBuf),
    /// A prefix of an object store.
    Store(StoreUrl),
}

impl Location {
    /// Reads a path or a URL: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, `http(s)://host/bucket/prefix` of a
    /// store with the interface of S3, `file:///path`, or a path.
    ///
    /// # Errors
    ///
    /// Returns an error for a scheme that is not known, a URL without a bucket, and a URL that contains credentials. The message does
    /// not contain them.
    pub fn parse(text: &str) -> io::Result<Self> {
        let Some(scheme) = url_scheme(Path::new(text)) else {
            return Ok(Self::Directory(PathBuf::from(text)));
        };
        if !text[scheme.len()..].starts_with("://") {
            return Err(invalid(format!(
                "`{scheme}:` is followed by one slash: expected the URL {scheme}://… with two, as a string (a path loses one), or `./` before the path of a \
                 directory"
            )));
        }
        // What does not parse may still contain a password.
        let url: Url =
            text.parse().map_err(|error| invalid(format!("cannot read the URL of a cache: {error}")))?;
        refuse_user(&url)?;
        if url.scheme() == "file" {
            let path = url.to_file_path();
            return path
                .map(Self::Directory)
                .map_err(|()| invalid(format!("{url} names no path of this machine")));
        }
        StoreUrl::of(&url).map(Self::Store)
    }

    /// As [`parse`](Self::parse), for what a command or function takes as a path.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse).
    pub fn of_path(path: &Path) -> io::Result<Self> {
        match (path.to_str(), url_scheme(path)) {
            (Some(text), _) => Self::parse(text),
            (None, None) => Ok(Self::Directory(path.to_owned())),
            (None, Some(scheme)) => {
                Err(invalid(format!("cannot read the URL {scheme}://… of a cache: it is not UTF-8")))
            }
        }
    }
}

/// The part of a URL that contains no credentials, for messages.
fn place(url: &Url) -> String {
    format!("{}://{}", url.scheme(), url.host_str().unwrap_or_default())
}

/// Makes sure that a URL contains no password and no user, which could be a secret. The container of an Azure URL is written as a user if
/// the account is the host.
fn refuse_user(url: &Url) -> io::Result<()> {
    let is_account =
        |host: &str| host.ends_with(".core.windows.net") || host.ends_with(".fabric.microsoft.com");
    let has_container =
        matches!(url.scheme(), "az" | "abfs" | "abfss") && url.host_str().is_some_and(is_account);
    if url.password().is_none() && (url.username().is_empty() || has_container) {
        return Ok(());
    }
    Err(invalid(format!(
        "the URL of {} contains a password or user: credentials belong into the environment or the options",
        place(url)
    )))
}

/// Which interface a store has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Interface {
    S3,
    Google,
    Azure,
}

/// A prefix of an object store, by its URL. It contains no credentials.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct StoreUrl {
    pub(crate) interface: Interface,
    /// The URL of the bucket, as `object_store` reads it.
    pub(crate) bucket: String,
    /// The endpoint and the bucket of a store that is known by its endpoint only.
    pub(crate) endpoint: Option<(String, String)>,
    /// Of names in the bucket, without a slash at the end; empty if the cache is the whole bucket.
    pub(crate) prefix: String,
    shown: String,
}

impl StoreUrl {
    fn of(url: &Url) -> io::Result<Self> {
        let place = place(url);
        if url.query().is_some() || url.fragment().is_some() {
            return Err(invalid(format!(
                "the URL of {place} has a part after `?` or `#`: a token belongs into the environment or the options, and nothing else is known"
            )));
        }
        let unknown = |_| {
            invalid(format!(
                "cannot open {place}: expected s3://, gs://, az://, http(s):// of a store with the interface of S3, file:// or a path"
            ))
        };
        let (scheme, path) = ObjectStoreScheme::parse(url).map_err(unknown)?;
        let interface = match scheme {
            ObjectStoreScheme::AmazonS3 | ObjectStoreScheme::Http => Interface::S3,
            ObjectStoreScheme::GoogleCloudStorage => Interface::Google,
            ObjectStoreScheme::MicrosoftAzure => Interface::Azure,
            _ => return Err(unknown(object_store::path::Error::InvalidPath { path: PathBuf::new() }.into())),
        };
        let shown = url.as_str().trim_end_matches('/').to_owned();
        if scheme != ObjectStoreScheme::Http {
            return Ok(Self {
                interface,
                bucket: shown.clone(),
                endpoint: None,
                prefix: path.to_string(),
                shown,
            });
        }
        let (bucket, prefix) = path.as_ref().split_once('/').unwrap_or((path.as_ref(), ""));
        if bucket.is_empty() {
            return Err(invalid(format!("{place} names no bucket: expected {place}/BUCKET/PREFIX")));
        }
        let origin = url.origin().ascii_serialization();
        let endpoint = Some((origin, bucket.to_owned()));
        Ok(Self { interface, bucket: String::new(), endpoint, prefix: prefix.to_owned(), shown })
    }

    /// A name under the prefix, for messages.
    pub(crate) fn show(&self, name: &str) -> String {
        if name.is_empty() { self.shown.clone() } else { format!("{}/{name}", self.shown) }
    }

    /// The key of a name under the prefix.
    pub(crate) fn key(&self, name: &str) -> String {
        match (self.prefix.as_str(), name) {
            ("", name) => name.to_owned(),
            (prefix, "") => prefix.to_owned(),
            (prefix, name) => format!("{prefix}/{name}"),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(text: &str) -> StoreUrl {
        match Location::parse(text).unwrap() {
            Location::Store(url) => url,
            Location::Directory(path) => panic!("{} is a directory", path.display()),
        }
    }

    #[test]
    fn each_kind_of_url_has_an_interface_and_a_prefix() {
        for (text, interface, prefix) in [
            ("s3://b/p/q/", Interface::S3, "p/q"),
            ("s3://b", Interface::S3, ""),
            ("gs://b/p", Interface::Google, "p"),
            ("az://container/p", Interface::Azure, "p"),
            ("abfss://container@account.dfs.core.windows.net/p", Interface::Azure, "p"),
            ("az://container@account.blob.core.windows.net/p", Interface::Azure, "p"),
            ("https://account.blob.core.windows.net/container/p", Interface::Azure, "p"),
            ("https://s3.eu-central-1.amazonaws.com/b/p", Interface::S3, "p"),
            ("https://b.s3.eu-central-1.amazonaws.com/p", Interface::S3, "p"),
            ("https://account.r2.cloudflarestorage.com/b/p", Interface::S3, "p"),
            ("http://127.0.0.1:9000/b/p/q", Interface::S3, "p/q"),
            ("https://minio.example.com/b", Interface::S3, ""),
        ] {
            let url = store(text);
            assert_eq!((url.interface, url.prefix.as_str()), (interface, prefix), "{text}");
            assert_eq!(url.to_string(), text.trim_end_matches('/'));
        }
        let url = store("http://127.0.0.1:9000/b/p");
        assert_eq!(url.endpoint, Some(("http://127.0.0.1:9000".to_owned(), "b".to_owned())));
        assert_eq!((url.key("m/x"), url.show("m/x")), ("p/m/x".to_owned(), format!("{url}/m/x")));
    }

    #[test]
    fn a_path_and_a_file_url_are_directories() {
        for (text, path) in
            [("cache", "cache"), ("/a/b", "/a/b"), ("file:///a/b%20c", "/a/b c"), ("C:\\x", "C:\\x")]
        {
            assert_eq!(Location::parse(text).unwrap(), Location::Directory(path.into()));
        }
        assert_eq!(Location::parse("./s3://b/p").unwrap(), Location::Directory("./s3://b/p".into()));
    }

    #[test]
    fn a_url_with_one_slash_is_not_taken_for_a_directory() {
        let refused = Location::parse("s3:/b/hunter2").unwrap_err().to_string();
        assert!(refused.contains("expected the URL s3://…") && !refused.contains("hunter2"), "{refused}");
    }

    #[test]
    fn credentials_in_a_url_are_refused_and_not_repeated() {
        for text in [
            "https://user:hunter2@host/b/p",
            "https://hunter2@host/b/p",
            "s3://key:hunter2@b/p",
            "s3://hunter2@b/p",
            "gs://hunter2@b/p",
            "az://hunter2@container/p",
            "azure://hunter2@container/p",
            "az://container:hunter2@account.blob.core.windows.net/p",
            "ftp://hunter2@host/p",
            "https://account.blob.core.windows.net/c?sv=1&sig=hunter2",
        ] {
            let refused = Location::parse(text).unwrap_err().to_string();
            assert!(!refused.contains("hunter2") && refused.contains("environment"), "{refused}");
        }
        for text in ["file://user:hunter2@host/p", "file://hunter2@host/p"] {
            let refused = Location::parse(text).unwrap_err().to_string();
            assert!(!refused.contains("hunter2"), "{refused}");
        }
    }

    #[test]
    fn other_urls_are_refused_with_those_that_are_known() {
        for text in ["ftp://host/b", "memory:///x", "hdfs://name/x"] {
            let refused = Location::parse(text).unwrap_err().to_string();
            assert!(refused.contains("expected s3://"), "{refused}");
        }
        assert!(Location::parse("http://host").unwrap_err().to_string().contains("BUCKET"));
    }
}
