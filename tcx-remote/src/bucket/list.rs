//! Listings, from a name on.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

use object_store::list::{PaginatedListOptions, PaginatedListResult};

use super::{Bucket, Client, Object};
use crate::client::error::Failure;
use crate::client::retry::Deadline;

/// What a folder contains.
struct Listed {
    objects: Vec<Object>,
    folders: Vec<String>,
}

impl Bucket {
    /// The objects in a folder, without those in folders of it, in the order of their names; those behind `after` if there is one. The
    /// empty folder is the prefix itself. A folder without objects does not exist, and has none.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be reached, or if the bucket does not exist.
    pub fn list(&self, folder: &str, after: Option<&str>) -> io::Result<Vec<Object>> {
        self.listed(folder, after).map(|listed| listed.objects)
    }

    /// The folders in a folder, in the order of their names.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list).
    pub fn folders(&self, folder: &str) -> io::Result<Vec<String>> {
        self.listed(folder, None).map(|listed| listed.folders)
    }

    fn listed(&self, folder: &str, after: Option<&str>) -> io::Result<Listed> {
        let mut prefix = self.0.url.key(folder);
        if !prefix.is_empty() {
            prefix.push('/');
        }
        let after = after.map(|after| format!("{prefix}{after}"));
        self.call("list", folder, 0, |client, deadline| list(client, deadline, prefix, after))
    }
}

async fn list(
    client: Client,
    mut deadline: Deadline,
    prefix: String,
    after: Option<String>,
) -> Result<Listed, Failure> {
    // By name: a page that was asked for again, or a store without order, may repeat some.
    let (mut objects, mut folders) = (BTreeMap::new(), BTreeSet::new());
    let mut token = None;
    loop {
        let page = client.attempts(&mut deadline, || {
            let options = PaginatedListOptions {
                offset: after.clone(),
                delimiter: Some(Cow::Borrowed("/")),
                page_token: token.clone(),
                ..PaginatedListOptions::default()
            };
            client.store.list_paginated(Some(&prefix), options)
        });
        let known = objects.len() + folders.len();
        let PaginatedListResult { result, page_token } = page.await?;
        for meta in result.objects {
            let key = meta.location.to_string();
            // Some stores ignore where a listing is to begin.
            if after.as_ref().is_some_and(|after| key <= *after) {
                continue;
            }
            if let Some(name) = key.strip_prefix(&prefix).filter(|name| !name.contains('/')) {
                let name = name.to_owned();
                objects.insert(name.clone(), Object::of(meta, name));
            }
        }
        let names = result.common_prefixes.iter().filter_map(|folder| folder.filename());
        folders.extend(names.map(str::to_owned));
        if page_token.is_none() {
            break;
        }
        // Each page that brings something may take the time of a call: a large folder has many. A store may repeat itself.
        if objects.len() + folders.len() > known {
            deadline = deadline.again();
        }
        token = page_token;
    }
    Ok(Listed { objects: objects.into_values().collect(), folders: folders.into_iter().collect() })
}
