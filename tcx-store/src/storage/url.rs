//! URLs where paths are expected.

use std::path::Path;

/// The scheme of a URL that is passed as the path of a directory; `None` for the path of a directory. A slash may be missing, as where a
/// URL was taken apart as a path and put together again.
///
/// ```
/// use std::path::Path;
/// use tcx_store::url_scheme;
///
/// assert_eq!(url_scheme(Path::new("s3://features/imagenet")), Some("s3"));
/// assert_eq!(url_scheme(Path::new("s3:/features/imagenet")), Some("s3"));
/// for directory in ["cache", "/data/s3:/cache", "./s3://features", "C:/cache"] {
///     assert_eq!(url_scheme(Path::new(directory)), None);
/// }
/// ```
pub fn url_scheme(path: &Path) -> Option<&str> {
    let bytes = path.as_os_str().as_encoded_bytes();
    let end = bytes.windows(2).position(|two| two == b":/")?;
    let scheme = str::from_utf8(&bytes[..end]).ok()?;
    // A single letter is a drive of Windows.
    let is_first = scheme.len() > 1 && scheme.starts_with(|first: char| first.is_ascii_alphabetic());
    let is_scheme = scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    (is_first && is_scheme).then_some(scheme)
}
