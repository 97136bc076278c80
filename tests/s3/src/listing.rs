//! Pages of listings.

use std::collections::{BTreeMap, BTreeSet};

use s3s::dto::{CommonPrefix, ETag, ListObjectsV2Input, ListObjectsV2Output, Object};

use crate::state::StoredObject;

/// Keys and folders of a page, as S3 has it.
const PAGE: usize = 1000;

/// A page of the objects. If `ignores_start`, the listing begins with the first one, wherever it should.
pub(crate) fn page(
    objects: &BTreeMap<String, StoredObject>,
    input: &ListObjectsV2Input,
    ignores_start: bool,
) -> ListObjectsV2Output {
    let prefix = input.prefix.clone().unwrap_or_default();
    let start = input.start_after.clone().filter(|_| !ignores_start);
    let after = input.continuation_token.clone().or(start).unwrap_or_default();
    let most = input.max_keys.map_or(PAGE, |most| PAGE.min(most as usize));
    let (mut contents, mut folders, mut last, mut is_truncated) =
        (Vec::new(), BTreeSet::new(), String::new(), false);
    for (key, object) in objects.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix)) {
        let rest = &key[prefix.len()..];
        let folder = input.delimiter.as_ref().and_then(|delimiter| {
            rest.find(delimiter.as_str()).map(|at| format!("{prefix}{}", &rest[..at + delimiter.len()]))
        });
        let shown = folder.as_ref().unwrap_or(key);
        if *shown <= after || folder.as_ref().is_some_and(|folder| folders.contains(folder)) {
            continue;
        }
        if contents.len() + folders.len() == most {
            is_truncated = true;
            break;
        }
        last.clone_from(shown);
        match folder {
            Some(folder) => drop(folders.insert(folder)),
            None => contents.push(entry(key, object)),
        }
    }
    let folders: Vec<_> = folders.into_iter().map(|prefix| CommonPrefix { prefix: Some(prefix) }).collect();
    ListObjectsV2Output {
        key_count: Some((contents.len() + folders.len()) as i32),
        contents: Some(contents),
        common_prefixes: Some(folders),
        is_truncated: Some(is_truncated),
        next_continuation_token: is_truncated.then_some(last),
        name: Some(input.bucket.clone()),
        prefix: Some(prefix),
        ..ListObjectsV2Output::default()
    }
}

fn entry(key: &str, object: &StoredObject) -> Object {
    Object {
        key: Some(key.to_owned()),
        size: Some(object.bytes.len() as i64),
        last_modified: Some(object.modified.into()),
        e_tag: Some(tag(object.tag)),
        ..Object::default()
    }
}

pub(crate) fn tag(number: u64) -> ETag {
    ETag::Strong(format!("{number:032x}"))
}
