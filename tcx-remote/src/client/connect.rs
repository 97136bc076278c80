//! Clients of the stores that `object_store` knows.

use std::io;
use std::str::FromStr;
use std::sync::Arc;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::list::PaginatedListStore;
use object_store::multipart::MultipartStore;
use object_store::{ClientConfigKey, ObjectStore, RetryConfig};
use url::Url;

use super::requests::{Counters, CountingConnector};
use crate::error::invalid;
use crate::options::ClientOptions;
use crate::url::{Interface, StoreUrl};

/// A client that can also list from a name on, and write the parts of an object one by one.
pub(crate) trait Store: ObjectStore + PaginatedListStore + MultipartStore {}

impl<T: ObjectStore + PaginatedListStore + MultipartStore> Store for T {}

/// The time that a request may take by the clock of the HTTP client, which includes its body. Calls have deadlines of their own.
const TIMEOUT: &str = "1h";

/// A client of the store. No request is made yet.
///
/// # Errors
///
/// Returns an error if a setting is not known or is missing. The message names settings, and no values.
pub(crate) fn connect(
    url: &StoreUrl,
    options: &ClientOptions,
    counters: &Arc<Counters>,
) -> io::Result<Arc<dyn Store>> {
    let connector = CountingConnector(counters.clone());
    match url.interface {
        Interface::S3 => {
            let builder = s3(url, options)?;
            built(url, builder.with_retry(no_retries()).with_http_connector(connector).build())
        }
        Interface::Google => {
            let builder = google(url, options)?;
            built(url, builder.with_retry(no_retries()).with_http_connector(connector).build())
        }
        Interface::Azure => {
            let builder = azure(url, options)?;
            built(url, builder.with_retry(no_retries()).with_http_connector(connector).build())
        }
    }
}

/// What a URL leaves open of which store it means, as the options and the environment say: two stores may have buckets of one name. It is
/// the endpoint, and the account of Azure.
///
/// # Errors
///
/// Returns an error if a setting is not known, or names another store than the URL, or if an endpoint contains credentials.
pub(crate) fn host(url: &StoreUrl, options: &ClientOptions) -> io::Result<Option<String>> {
    let said = match url.interface {
        Interface::S3 => {
            let builder = s3(url, options)?;
            let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
            if let Some((own, bucket)) = &url.endpoint {
                let is_own_bucket =
                    builder.get_config_value(&AmazonS3ConfigKey::Bucket).as_ref() == Some(bucket);
                if endpoint.as_ref() != Some(own) || !is_own_bucket {
                    return Err(invalid(format!(
                        "cannot open {url}: the options name another endpoint or bucket; leave them out, or pass an s3:// URL"
                    )));
                }
                return Ok(None);
            }
            vec![endpoint]
        }
        Interface::Google => vec![google(url, options)?.get_config_value(&GoogleConfigKey::BaseUrl)],
        Interface::Azure => {
            let builder = azure(url, options)?;
            let said = |key| builder.get_config_value(&key);
            vec![said(AzureConfigKey::AccountName), said(AzureConfigKey::Endpoint)]
        }
    };
    let said: Vec<String> = said.into_iter().flatten().collect();
    Ok((!said.is_empty()).then(|| said.join(" ")))
}

fn s3(url: &StoreUrl, options: &ClientOptions) -> io::Result<AmazonS3Builder> {
    let mut builder = AmazonS3Builder::from_env()
        .with_config(AmazonS3ConfigKey::Client(ClientConfigKey::Timeout), TIMEOUT)
        // Single requests are understood by every store, and answer for one object.
        .with_config(AmazonS3ConfigKey::DisableBulkDelete, "true");
    builder = match &url.endpoint {
        None => builder.with_url(&url.bucket),
        Some((endpoint, bucket)) => builder
            .with_endpoint(endpoint)
            .with_bucket_name(bucket)
            .with_allow_http(endpoint.starts_with("http://")),
    };
    for (name, value) in &options.settings {
        builder = builder.with_config(key::<AmazonS3ConfigKey>(name, url)?, value);
    }
    check_endpoint(url, builder.get_config_value(&AmazonS3ConfigKey::Endpoint))?;
    Ok(builder)
}

fn azure(url: &StoreUrl, options: &ClientOptions) -> io::Result<MicrosoftAzureBuilder> {
    let mut builder = MicrosoftAzureBuilder::from_env()
        .with_config(AzureConfigKey::Client(ClientConfigKey::Timeout), TIMEOUT)
        .with_url(&url.bucket);
    for (name, value) in &options.settings {
        builder = builder.with_config(key::<AzureConfigKey>(name, url)?, value);
    }
    check_endpoint(url, builder.get_config_value(&AzureConfigKey::Endpoint))?;
    Ok(builder)
}

fn google(url: &StoreUrl, options: &ClientOptions) -> io::Result<GoogleCloudStorageBuilder> {
    let mut builder = GoogleCloudStorageBuilder::from_env()
        .with_config(GoogleConfigKey::Client(ClientConfigKey::Timeout), TIMEOUT)
        .with_url(&url.bucket);
    for (name, value) in &options.settings {
        builder = builder.with_config(key::<GoogleConfigKey>(name, url)?, value);
    }
    check_endpoint(url, builder.get_config_value(&GoogleConfigKey::BaseUrl))?;
    Ok(builder)
}

/// Makes sure that an endpoint contains no credentials: it is part of the name of a folder in the near tier.
fn check_endpoint(url: &StoreUrl, endpoint: Option<String>) -> io::Result<()> {
    let has_more = |endpoint: Url| {
        let is_named = !endpoint.username().is_empty() || endpoint.password().is_some();
        is_named || endpoint.query().is_some() || endpoint.fragment().is_some()
    };
    // What is no URL is refused where a client is made.
    if endpoint.and_then(|endpoint| endpoint.parse().ok()).is_some_and(has_more) {
        return Err(invalid(format!(
            "cannot open {url}: the endpoint in the environment or the options contains a user, a password, or a part after `?` or `#`; \
             pass credentials in settings of their own"
        )));
    }
    Ok(())
}

/// `object_store` tries the creation of an object again after a failure, meets the object that it has created itself, and says that there
/// is one. So each try is made here, where its result is looked at.
fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

fn key<K: FromStr>(name: &str, url: &StoreUrl) -> io::Result<K> {
    let unknown =
        |_| invalid(format!("cannot open {url}: there is no setting `{name}` for this kind of store"));
    name.to_ascii_lowercase().parse().map_err(unknown)
}

fn built<S: Store>(url: &StoreUrl, built: object_store::Result<S>) -> io::Result<Arc<dyn Store>> {
    match built {
        Ok(store) => Ok(Arc::new(store)),
        // The error of a value that does not parse repeats the value.
        Err(_) => Err(invalid(format!(
            "cannot open {url}: a setting is missing or its value cannot be read; check the bucket, the endpoint, the region and the \
             account in the environment and the options"
        ))),
    }
}
