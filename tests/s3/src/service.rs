//! The requests of S3 that object stores are used with.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream};
use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, CompleteMultipartUploadInput,
    CompleteMultipartUploadOutput, CreateMultipartUploadInput, CreateMultipartUploadOutput,
    DeleteObjectInput, DeleteObjectOutput, GetObjectInput, GetObjectOutput, HeadObjectInput,
    HeadObjectOutput, ListObjectsV2Input, ListObjectsV2Output, PutObjectInput, PutObjectOutput,
    StreamingBlob, UploadPartInput, UploadPartOutput,
};
use s3s::{S3, S3Error, S3Request, S3Response, S3Result, s3_error};

use crate::BUCKET;
use crate::faults::{Fault, Operation};
use crate::listing::{page, tag};
use crate::state::State;

/// What is sent of a body before the line is given to the next one.
const PIECE: usize = 128 << 10;

/// Pieces of a body are put into the line so early.
const AHEAD: Duration = Duration::from_millis(4);

pub(crate) struct Service(pub(crate) Arc<State>);

impl Service {
    /// Answers a request, or fails as it is to fail. `happen` gets the fault that it has to apply itself.
    async fn answer<T, F: Future<Output = S3Result<T>>>(
        &self,
        operation: Operation,
        (bucket, key): (&str, &str),
        happen: impl FnOnce(Option<Fault>) -> F,
    ) -> S3Result<S3Response<T>> {
        self.0.count(operation);
        let _in_flight = self.0.begin();
        let (fault, latency) = {
            let mut faults = self.0.faults();
            (faults.draw(operation, key), faults.latency)
        };
        tokio::time::sleep(latency).await;
        if let Some(Fault::Late(late)) = fault {
            tokio::time::sleep(late).await;
        }
        match fault {
            Some(Fault::Before) => return Err(failed()),
            Some(Fault::Throttled) => return Err(s3_error!(SlowDown)),
            Some(Fault::Denied) => return Err(s3_error!(AccessDenied)),
            Some(Fault::Expired) => return Err(s3_error!(ExpiredToken)),
            // Its status is 409, as that of a conflict of conditional requests.
            Some(Fault::Conflict) => return Err(s3_error!(OperationAborted)),
            _ => {}
        }
        if bucket != BUCKET {
            return Err(s3_error!(NoSuchBucket));
        }
        let done = happen(fault).await?;
        if fault == Some(Fault::After) { Err(failed()) } else { Ok(S3Response::new(done)) }
    }

    /// Waits as long as these bytes take on a line that all requests share, piece by piece, as connections share one: a short body does
    /// not wait for the end of all long ones.
    async fn transfer(&self, bytes: usize) {
        let bandwidth = self.0.faults().bandwidth;
        if bandwidth == 0 {
            return;
        }
        let mut left = bytes;
        while left > 0 {
            let piece = left.min(PIECE);
            left -= piece;
            let until = self.0.send(Duration::from_secs_f64(piece as f64 / bandwidth as f64));
            // Timers are coarse: the next piece is in the line before this one is over.
            let early = if left > 0 { until.checked_sub(AHEAD).unwrap_or(until) } else { until };
            tokio::time::sleep_until(early.into()).await;
        }
    }

    async fn received(&self, body: Option<StreamingBlob>) -> S3Result<Bytes> {
        let mut bytes = BytesMut::new();
        if let Some(mut body) = body {
            while let Some(piece) = body.next().await {
                bytes.extend_from_slice(&piece.map_err(|_| s3_error!(IncompleteBody))?);
            }
        }
        self.transfer(bytes.len()).await;
        Ok(bytes.freeze())
    }
}

fn failed() -> S3Error {
    s3_error!(InternalError, "this request is one that fails")
}

/// A body that may be damaged on its way.
fn body(bytes: Bytes, fault: Option<Fault>) -> StreamingBlob {
    let pieces = match fault {
        Some(Fault::Cut) => {
            let half = bytes.slice(..bytes.len() / 2);
            vec![Ok(half), Err(io::Error::from(io::ErrorKind::ConnectionReset))]
        }
        Some(Fault::Stalled(late)) => {
            let (first, rest) = (bytes.slice(..bytes.len() / 2), bytes.slice(bytes.len() / 2..));
            let rest = async move {
                tokio::time::sleep(late).await;
                Ok(rest)
            };
            return StreamingBlob::wrap(
                stream::iter([Ok::<_, io::Error>(first)]).chain(stream::once(Box::pin(rest))),
            );
        }
        Some(Fault::Flipped) if !bytes.is_empty() => {
            let mut bytes = bytes.to_vec();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            vec![Ok(bytes.into())]
        }
        _ => vec![Ok(bytes)],
    };
    StreamingBlob::wrap(stream::iter(pieces))
}

#[async_trait::async_trait]
impl S3 for Service {
    async fn put_object(&self, request: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        let PutObjectInput { bucket, key, body, if_none_match, .. } = request.input;
        let ignores = self.0.faults().ignores_conditions;
        let bytes = self.received(body).await?;
        self.answer(Operation::Put, (&bucket, &key), async |_| {
            let put = if if_none_match.is_some() && !ignores {
                self.0.create(&key, bytes).ok_or_else(|| s3_error!(PreconditionFailed))?
            } else {
                self.0.put(&key, bytes)
            };
            Ok(PutObjectOutput { e_tag: Some(tag(put)), ..PutObjectOutput::default() })
        })
        .await
    }

    async fn get_object(&self, request: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        let GetObjectInput { bucket, key, range, if_match, .. } = request.input;
        self.answer(Operation::Get, (&bucket, &key), async |fault| {
            let object = self.0.get(&key).ok_or_else(|| s3_error!(NoSuchKey))?;
            if if_match.is_some_and(|wanted| wanted.as_etag() != Some(&tag(object.tag))) {
                return Err(s3_error!(PreconditionFailed));
            }
            let total = object.bytes.len() as u64;
            let (part, content_range) = match range {
                None => (0..total, None),
                Some(range) => {
                    let part = range.check(total).map_err(|_| s3_error!(InvalidRange))?;
                    let shown = format!("bytes {}-{}/{total}", part.start, part.end - 1);
                    (part, Some(shown))
                }
            };
            let bytes = object.bytes.slice(part.start as usize..part.end as usize);
            self.transfer(bytes.len()).await;
            self.0.count_sent(bytes.len());
            Ok(GetObjectOutput {
                content_length: Some(bytes.len() as i64),
                content_range,
                body: Some(body(bytes, fault)),
                e_tag: Some(tag(object.tag)),
                last_modified: Some(object.modified.into()),
                ..GetObjectOutput::default()
            })
        })
        .await
    }

    async fn head_object(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let HeadObjectInput { bucket, key, .. } = request.input;
        self.answer(Operation::Head, (&bucket, &key), async |_| {
            let object = self.0.get(&key).ok_or_else(|| s3_error!(NoSuchKey))?;
            Ok(HeadObjectOutput {
                content_length: Some(object.bytes.len() as i64),
                e_tag: Some(tag(object.tag)),
                last_modified: Some(object.modified.into()),
                ..HeadObjectOutput::default()
            })
        })
        .await
    }

    async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        let DeleteObjectInput { bucket, key, .. } = request.input;
        self.answer(Operation::Delete, (&bucket, &key), async |_| {
            self.0.remove(&key);
            Ok(DeleteObjectOutput::default())
        })
        .await
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let input = request.input;
        let (bucket, prefix) = (input.bucket.clone(), input.prefix.clone().unwrap_or_default());
        let ignores_start = self.0.faults().ignores_start;
        self.answer(Operation::List, (&bucket, &prefix), async |fault| {
            Ok(page(&self.0.objects(fault == Some(Fault::Stale)), &input, ignores_start))
        })
        .await
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        let CreateMultipartUploadInput { bucket, key, .. } = request.input;
        self.answer(Operation::Put, (&bucket, &key), async |_| {
            Ok(CreateMultipartUploadOutput {
                bucket: Some(bucket.clone()),
                key: Some(key.clone()),
                upload_id: Some(self.0.begin_upload()),
                ..CreateMultipartUploadOutput::default()
            })
        })
        .await
    }

    async fn upload_part(
        &self,
        request: S3Request<UploadPartInput>,
    ) -> S3Result<S3Response<UploadPartOutput>> {
        let UploadPartInput { bucket, key, body, part_number, upload_id, .. } = request.input;
        let bytes = self.received(body).await?;
        self.answer(Operation::Put, (&bucket, &key), async |_| {
            if !self.0.add_part(&upload_id, part_number, bytes) {
                return Err(s3_error!(NoSuchUpload));
            }
            Ok(UploadPartOutput { e_tag: Some(tag(part_number as u64)), ..UploadPartOutput::default() })
        })
        .await
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let CompleteMultipartUploadInput { bucket, key, upload_id, .. } = request.input;
        self.answer(Operation::Put, (&bucket, &key), async |_| {
            let bytes = self.0.end_upload(&upload_id).ok_or_else(|| s3_error!(NoSuchUpload))?;
            let put = self.0.put(&key, bytes);
            Ok(CompleteMultipartUploadOutput {
                e_tag: Some(tag(put)),
                ..CompleteMultipartUploadOutput::default()
            })
        })
        .await
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        let AbortMultipartUploadInput { bucket, key, upload_id, .. } = request.input;
        self.answer(Operation::Delete, (&bucket, &key), async |_| {
            self.0.end_upload(&upload_id).ok_or_else(|| s3_error!(NoSuchUpload))?;
            Ok(AbortMultipartUploadOutput::default())
        })
        .await
    }
}
