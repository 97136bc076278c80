//! A store that answers as the simulation wants it to.

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use object_store::list::{PaginatedListOptions, PaginatedListResult, PaginatedListStore};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartId,
    MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};
use tcx_store::testing::simulation::objects::{ObjectFacts, Objects, Refusal};

use crate::client::requests::{ANSWER, Answer};

/// The prefix of the cache in the bucket.
pub(super) const PREFIX: &str = "p";

#[derive(Debug)]
pub(super) struct SimulatedStore(pub(super) Objects);

impl std::fmt::Display for SimulatedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("simulated")
    }
}

/// The key under the prefix.
fn under(location: &str) -> &str {
    location.strip_prefix(PREFIX).and_then(|key| key.strip_prefix('/')).unwrap_or(location)
}

fn meta(facts: &ObjectFacts) -> ObjectMeta {
    ObjectMeta {
        location: Path::from(format!("{PREFIX}/{}", facts.key)),
        last_modified: facts.modified.into(),
        size: facts.bytes,
        e_tag: Some(format!("{:016x}", facts.tag)),
        version: None,
    }
}

/// What `object_store` makes of an answer.
fn answered<T>(key: &str, answer: std::result::Result<T, Refusal>, is_listing: bool) -> Result<T> {
    let refusal = match answer {
        Ok(done) => return Ok(done),
        Err(refusal) => refusal,
    };
    let (path, source) = (key.to_owned(), format!("{refusal:?}").into());
    let (status, error) = match refusal {
        Refusal::Absent => (404, Error::NotFound { path, source }),
        Refusal::Exists => (412, Error::AlreadyExists { path, source }),
        Refusal::Conflict => (409, Error::AlreadyExists { path, source }),
        Refusal::Denied => (403, Error::PermissionDenied { path, source }),
        Refusal::Throttled => (503, Error::Generic { store: "simulated", source }),
        Refusal::Failed => (500, Error::Generic { store: "simulated", source }),
        Refusal::Lost | Refusal::Died => return Err(Error::Generic { store: "simulated", source }),
    };
    let _ = ANSWER.try_with(|last| last.set(Some(Answer { status, is_listing })));
    Err(error)
}

fn unused<T>(operation: &str) -> Result<T> {
    let implementer = "the simulation".to_owned();
    Err(Error::NotImplemented { operation: operation.to_owned(), implementer })
}

#[async_trait]
impl ObjectStore for SimulatedStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let bytes: Bytes = payload.into();
        let key = under(location.as_ref());
        let put = match options.mode {
            PutMode::Create => self.0.create(key, &bytes),
            PutMode::Overwrite | PutMode::Update(_) => self.0.put(key, &bytes),
        };
        let put = answered(key, put, false)?;
        Ok(PutResult { e_tag: meta(&put).e_tag, version: None, extensions: <_>::default() })
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        unused("put_multipart")
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let key = under(location.as_ref());
        let (facts, bytes) = if options.head {
            (answered(key, self.0.head(key), false)?, Bytes::new())
        } else {
            let (facts, bytes) = answered(key, self.0.get(key), false)?;
            (facts, Bytes::copy_from_slice(&bytes))
        };
        let range = match options.range {
            Some(GetRange::Bounded(range)) => range.start.min(facts.bytes)..range.end.min(facts.bytes),
            _ => 0..facts.bytes,
        };
        let body = if options.head { bytes } else { bytes.slice(range.start as usize..range.end as usize) };
        let payload = GetResultPayload::Stream(stream::once(async { Ok(body) }).boxed());
        let (meta, attributes, extensions) = (meta(&facts), <_>::default(), <_>::default());
        Ok(GetResult { payload, meta, range, attributes, extensions })
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let objects = self.0.clone();
        let delete = move |location: Result<Path>| {
            let location = location?;
            let key = under(location.as_ref());
            answered(key, objects.delete(key), false)?;
            Ok(location)
        };
        locations.map(delete).boxed()
    }

    fn list(&self, _: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        stream::once(async { unused("list") }).boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        unused("list_with_delimiter")
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        unused("copy")
    }
}

#[async_trait]
impl PaginatedListStore for SimulatedStore {
    async fn list_paginated(
        &self,
        prefix: Option<&str>,
        options: PaginatedListOptions,
    ) -> Result<PaginatedListResult> {
        let folder = under(prefix.unwrap_or_default());
        let mut listed = answered(folder, self.0.list(folder), true)?;
        if let Some(after) = &options.offset {
            listed.retain(|facts| facts.key.as_str() > under(after));
        }
        let objects = listed.iter().map(meta).collect();
        let result = ListResult { common_prefixes: Vec::new(), objects, extensions: <_>::default() };
        Ok(PaginatedListResult { result, page_token: None })
    }
}

/// The segments of the simulation are short.
#[async_trait]
impl MultipartStore for SimulatedStore {
    async fn create_multipart(&self, _: &Path) -> Result<MultipartId> {
        unused("create_multipart")
    }

    async fn put_part(&self, _: &Path, _: &MultipartId, _: usize, _: PutPayload) -> Result<PartId> {
        unused("put_part")
    }

    async fn complete_multipart(&self, _: &Path, _: &MultipartId, _: Vec<PartId>) -> Result<PutResult> {
        unused("complete_multipart")
    }

    async fn abort_multipart(&self, _: &Path, _: &MultipartId) -> Result<()> {
        unused("abort_multipart")
    }
}
