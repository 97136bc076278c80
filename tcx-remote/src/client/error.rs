//! What a failed request means, without what was sent: errors of `object_store` contain addresses with tokens and answers that repeat
//! credentials.

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind};

use object_store::Error as StoreError;

use super::requests::Answer;

/// Codes in an answer of a store, or of a service that hands out credentials, to a request whose credentials were valid once.
const EXPIRED: [&str; 5] = [
    "<Code>ExpiredToken",
    "<Code>InvalidToken",
    "<Code>TokenRefreshRequired",
    "<Code>InvalidIdentityToken",
    "\"invalid_grant\"",
];

/// The code of an answer to a request whose body came too slowly.
const REQUEST_TIMEOUT: &str = "<Code>RequestTimeout<";

/// Why one try of a request has failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) kind: ErrorKind,
    why: String,
    /// Whether the same request may succeed in a moment.
    pub(crate) is_transient: bool,
    /// Whether the store has answered, though not this request.
    is_slow: bool,
}

impl Failure {
    pub(crate) fn timed_out() -> Self {
        Self {
            kind: ErrorKind::TimedOut,
            why: "the store did not answer in time".to_owned(),
            is_transient: true,
            is_slow: false,
        }
    }

    /// The store answers other requests of this process.
    pub(crate) fn too_slow() -> Self {
        let why =
            "the line to the store is too slow: the store answers, but what was sent has not arrived in time";
        Self { is_slow: true, why: why.to_owned(), ..Self::timed_out() }
    }

    pub(crate) fn cut_off() -> Self {
        let why = "the store sent fewer bytes than it announced".to_owned();
        Self { kind: ErrorKind::UnexpectedEof, why, is_transient: true, is_slow: false }
    }

    /// The store says that there is an object, and there is not.
    pub(crate) fn conflict() -> Self {
        let why = "the store reports a conflict with an object that cannot be found".to_owned();
        Self { kind: ErrorKind::ResourceBusy, why, is_transient: true, is_slow: false }
    }

    /// What is read is not the object any more that was looked at before.
    pub(crate) fn replaced() -> Self {
        let why = "another object has taken its place a moment ago".to_owned();
        Self { kind: ErrorKind::StaleNetworkFileHandle, why, is_transient: false, is_slow: false }
    }

    /// A failure of this machine.
    pub(crate) fn local(error: &io::Error) -> Self {
        Self { kind: error.kind(), why: error.to_string(), is_transient: false, is_slow: false }
    }

    fn new(answer: Option<Answer>, kind: ErrorKind, is_transient: bool, why: &str) -> Self {
        let answered = answer.map(|answer| format!(" (status {})", answer.status)).unwrap_or_default();
        Self { kind, why: format!("{why}{answered}"), is_transient, is_slow: false }
    }

    /// `answer` is what was answered last.
    pub(crate) fn of(error: &StoreError, answer: Option<Answer>) -> Self {
        let new = |kind, is_transient, why| Self::new(answer, kind, is_transient, why);
        match error {
            StoreError::NotFound { .. } => {
                new(ErrorKind::NotFound, false, "there is no such object or bucket")
            }
            // Also a conflict with another request, which is over in a moment.
            StoreError::AlreadyExists { .. } | StoreError::Precondition { .. } => {
                let is_transient = answer.is_some_and(|answer| answer.status == 409);
                new(ErrorKind::AlreadyExists, is_transient, "there is such an object")
            }
            StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => Self::denied(answer),
            StoreError::NotSupported { .. } | StoreError::NotImplemented { .. } => {
                new(ErrorKind::Unsupported, false, "the store does not support this request")
            }
            StoreError::Generic { .. } => Self::generic(error, answer),
            // Not those that this process asks for: they were parsed before.
            StoreError::InvalidPath { source } => {
                let what =
                    format!("{source}, so no file of tcx can be there; remove the objects under that name");
                new(ErrorKind::InvalidData, false, &what)
            }
            other => {
                Self { kind: ErrorKind::Other, why: innermost(other), is_transient: false, is_slow: false }
            }
        }
    }

    fn denied(answer: Option<Answer>) -> Self {
        let why = "the store denied access; check the credentials, the policy of the bucket, and the clock of this machine";
        Self::new(answer, ErrorKind::PermissionDenied, false, why)
    }

    /// A failure that `object_store` does not distinguish from others.
    fn generic(error: &StoreError, answer: Option<Answer>) -> Self {
        let new = |kind, is_transient, why| Self::new(answer, kind, is_transient, why);
        let status = answer.map(|answer| answer.status);
        let is_listing = answer.is_some_and(|answer| answer.is_listing);
        match status {
            Some(400..=499) if is_expired(error) => new(
                ErrorKind::PermissionDenied,
                false,
                "the credentials have expired or are not valid; renew them",
            ),
            // Nothing came over the connection for a while.
            Some(400) if error.to_string().contains(REQUEST_TIMEOUT) => {
                new(ErrorKind::TimedOut, true, "the store has waited for the request for too long")
            }
            // Objects that do not exist, and access to objects that is denied, have errors of their own. So has what is said of a bucket
            // that is listed, but for those of other requests, which are made for credentials.
            Some(401 | 403 | 404) if !is_listing => {
                new(ErrorKind::PermissionDenied, status == Some(404), "the credentials cannot be obtained")
            }
            Some(404) => new(ErrorKind::NotFound, false, "there is no such object or bucket"),
            Some(401 | 403) => Self::denied(answer),
            Some(501) => new(ErrorKind::Unsupported, false, "the store does not support this request"),
            Some(429 | 503) => new(ErrorKind::ResourceBusy, true, "the store asks for fewer requests"),
            Some(500..) => new(ErrorKind::Other, true, "the store failed"),
            Some(300..=499) if !matches!(status, Some(408 | 425)) => new(
                ErrorKind::InvalidInput,
                false,
                "the store rejected the request; check the region, the endpoint and the bucket, and whether the credentials have expired",
            ),
            _ => Self {
                kind: ErrorKind::NotConnected,
                why: innermost(error),
                is_transient: true,
                is_slow: false,
            },
        }
    }

    /// Whether a condition of the request does not hold. A conflict with another request is over in a moment.
    pub(crate) fn is_condition(&self) -> bool {
        self.kind == ErrorKind::AlreadyExists && !self.is_transient
    }

    /// The error of a call: `action` and `place` say what failed.
    pub(crate) fn into_error(self, action: &str, place: &str) -> io::Error {
        let what = format!("cannot {action} {place}: {}", self.why);
        if self.is_slow { io::Error::new(self.kind, SlowLine(what)) } else { io::Error::new(self.kind, what) }
    }
}

/// The message of an error that says nothing of the store: it answers.
#[derive(Debug)]
struct SlowLine(String);

impl fmt::Display for SlowLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for SlowLine {}

/// Whether the store answers, and only what was sent has not arrived in time.
pub(crate) fn is_slow(error: &io::Error) -> bool {
    error.get_ref().is_some_and(<dyn Error + Send + Sync>::is::<SlowLine>)
}

/// Whether the answer says that the credentials have expired, or are those of no user any more.
fn is_expired(error: &StoreError) -> bool {
    let answer = error.to_string();
    EXPIRED.iter().any(|code| answer.contains(code))
}

/// The first cause, such as `Connection refused`: those around it contain addresses.
fn innermost(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    without_addresses(&cause.to_string())
}

/// Addresses may have tokens in them.
fn without_addresses(text: &str) -> String {
    let words =
        text.split(' ').map(|word| if word.contains("://") || word.contains('?') { "…" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(status: Option<u16>, is_listing: bool, said: &str) -> Failure {
        let error = StoreError::Generic { store: "S3", source: said.into() };
        Failure::of(&error, status.map(|status| Answer { status, is_listing }))
    }

    #[test]
    fn a_failure_contains_no_address_and_nothing_of_the_answer() {
        let said = "error for https://x.blob.core.windows.net/c?sig=hunter2 after a while";
        let error = StoreError::Generic { store: "Azure", source: said.into() };
        let shown = Failure::of(&error, None).into_error("read", "az://c/x").to_string();
        assert_eq!(shown, "cannot read az://c/x: error for … after a while");
        for status in [400, 403, 500, 503] {
            let said = failure(Some(status), true, "<AWSAccessKeyId>hunter2");
            let shown = said.into_error("read", "s3://b/x").to_string();
            assert!(!shown.contains("hunter2") && shown.contains(&status.to_string()), "{shown}");
        }
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        let of = |status| failure(status, true, "x").is_transient;
        assert!([None, Some(500), Some(502), Some(503), Some(429), Some(408)].into_iter().all(of));
        assert!(![Some(400), Some(405), Some(301), Some(501)].into_iter().any(of));
    }

    #[test]
    fn a_body_that_came_too_slowly_for_the_store_is_sent_again() {
        let found = failure(Some(400), false, "<Error><Code>RequestTimeout</Code></Error>");
        assert_eq!((found.kind, found.is_transient), (ErrorKind::TimedOut, true), "{found:?}");
        assert!(!failure(Some(400), false, "<Code>RequestTimeTooSkewed</Code>").is_transient);
    }

    #[test]
    fn only_a_listing_says_that_there_is_no_bucket() {
        for (status, is_listing, kind, said) in [
            (404, true, ErrorKind::NotFound, "no such object or bucket"),
            (404, false, ErrorKind::PermissionDenied, "cannot be obtained"),
            (403, true, ErrorKind::PermissionDenied, "denied access"),
            (403, false, ErrorKind::PermissionDenied, "cannot be obtained"),
        ] {
            let found = failure(Some(status), is_listing, "x");
            assert_eq!(found.kind, kind, "{found:?}");
            assert!(found.why.contains(said), "{found:?}");
        }
    }
}
