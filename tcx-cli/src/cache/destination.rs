//! Where rows are added: a cache directory, or a cache in an object store.

use std::path::Path;
use std::sync::Arc;

use tcx_store::{Options, Spec, Store};

use crate::cache::place::{check_target, or_create};
use crate::cache::store::StoreCache;
use crate::cache::{self, Hidden};
use crate::failure::{Code, Failure, Result};

pub(crate) struct Destination<'a> {
    /// What the user calls it.
    place: &'a Path,
    store: Option<StoreCache>,
    /// The modules that it has.
    modules: Vec<String>,
}

impl<'a> Destination<'a> {
    /// Fails unless rows can be added here: a mistyped place must not become a cache, unless `create` allows it.
    pub(crate) fn at(place: &'a Path, create: bool) -> Result<Self> {
        let Some(store) = StoreCache::at(place)? else {
            check_target(place, create)?;
            let modules = if place.exists() { cache::place::any(place)? } else { Vec::new() };
            return Ok(Self { place, store: None, modules });
        };
        let modules = store.modules()?;
        if modules.is_empty() && !create {
            let message = format!("no modules in {}", place.display());
            return Err(or_create(Failure::new(Code::NotFound, message)));
        }
        Ok(Self { place, store: Some(store), modules })
    }

    /// A cache that has modules.
    pub(crate) fn existing(place: &'a Path) -> Result<Self> {
        let store = StoreCache::at(place)?;
        let modules = match &store {
            None => cache::all(place)?,
            Some(store) => store.chosen(None)?,
        };
        Ok(Self { place, store, modules })
    }

    pub(crate) fn place(&self) -> &'a Path {
        self.place
    }

    /// Whether it has a module in a folder of this name.
    pub(crate) fn has(&self, folder: &str) -> bool {
        self.modules.iter().any(|own| own == folder)
    }

    /// What the module in this folder is.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such module; the message names the modules.
    pub(crate) fn spec(&self, folder: &str) -> Result<Spec> {
        cache::named(&self.modules, folder, self.place.display())?;
        match &self.store {
            None => cache::spec(self.place, folder),
            Some(store) => {
                let spec = store.spec(folder)?;
                cache::check_name(&spec, folder)?;
                Ok(spec)
            }
        }
    }

    /// Opens a module in a folder of this name, which may be a new one.
    pub(crate) fn open(&self, folder: &str, spec: Spec, options: &Options) -> Result<Arc<Store>> {
        let options = cache::in_folder(folder, options);
        match &self.store {
            None => Ok(Store::open(self.place, spec, &options)?),
            Some(store) => store.open_as(spec, &options),
        }
    }

    /// The rows that the module may have beside those that are served. Of a store, they are not known before it is received.
    pub(crate) fn hidden(&self, folder: &str) -> Result<Hidden> {
        let is_here = self.store.is_none() && self.has(folder);
        if is_here { Ok(Hidden::of(&cache::inspect(self.place, folder)?)) } else { Ok(Hidden::default()) }
    }
}
