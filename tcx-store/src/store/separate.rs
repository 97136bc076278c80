//! Which folder of a cache an identity has: that of its module, or one of its own beside it.

use std::io::ErrorKind;
use std::sync::Arc;

use crate::changes::IdentityChange;
use crate::changes::instance::read_if_any;
use crate::error::{Error, Result};
use crate::options::{OnMismatch, Options};
use crate::schema::spec::Spec;
use crate::storage::name::{FileName, separate_folder};
use crate::store::Store;
use crate::store::open_stores::Opening;
use crate::store::place::Place;

impl Spec {
    /// The folder that this identity has in a cache beside that of its module, with [`OnMismatch::Separate`].
    ///
    /// ```
    /// # use tcx_store::{ColumnType, DType, Identity, KeyType, Spec};
    /// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
    /// let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
    /// assert_eq!(tcx_store::module_of_folder(&spec.separate_folder()), Some("m_v1"));
    /// # Ok::<(), tcx_store::Error>(())
    /// ```
    pub fn separate_folder(&self) -> String {
        separate_folder(&self.module_id, &IdentityChange::new(self).digest())
    }
}

/// The name of the folder that a store of `spec` is opened in. With [`OnMismatch::Separate`], that is:
///
/// 1. the folder of this identity, once it exists: an identity keeps its folder, whatever becomes of the others;
/// 2. the folder of the module, if it has this identity;
/// 3. the folder of this identity. Also if the module has no folder yet: of two processes with different identities that start at
///    once, only one could have it.
///
/// # Errors
///
/// Returns an error if the folder of the identity cannot be looked at, or if that of the module has a change 0 that cannot be read, or
/// is a link.
pub(super) fn folder(
    place: &Place<'_>,
    opening: &mut Opening<'_>,
    spec: &Spec,
    options: &Options,
) -> Result<String> {
    let plain = spec.module_id.clone();
    if options.on_mismatch == OnMismatch::Refuse {
        return Ok(plain);
    }
    let separate = spec.separate_folder();
    let mut is_open =
        |name: &str| opening.last(&place.folder(name)).filter(|store: &Arc<Store>| !store.is_given_up());
    if is_open(&separate).is_some() {
        return Ok(separate);
    }
    let change = FileName::Change(0).to_string();
    match place.storage(&separate, options.read_mode)?.info(&change) {
        Ok(_) => return Ok(separate),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        // Whichever folder was taken now, the rows could be in the other one.
        Err(error) => {
            return Err(Error::io(
                "cannot look for the folder of an identity at",
                place.folder(&separate),
                error,
            ));
        }
    }
    let has_plain = match is_open(&plain) {
        // Its rows may still be buffered.
        Some(store) => IdentityChange::new(&store.core.spec).is_of(spec),
        None => read_if_any(&*place.storage(&plain, options.read_mode)?)?.is_some_and(|own| own.is_of(spec)),
    };
    Ok(if has_plain { plain } else { separate })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::inspect::folders::modules;
    use crate::schema::key::KeyType;
    use crate::schema::leaf::{ColumnType, DType};
    use crate::store::memory::Memory;
    use crate::testing::{compute, values};
    use crate::{ErrorKind as Kind, Options};

    fn spec(size: &str) -> Spec {
        let identity = [("size".to_owned(), size.to_owned())].into_iter().collect();
        let output = ColumnType::Dense { dtype: DType::I64, shape: &[] };
        Spec::new("m_v1", KeyType::Text, &output, identity, Vec::new()).unwrap()
    }

    fn options(on_mismatch: OnMismatch) -> Options {
        Options { on_mismatch, ..Options::default() }
    }

    fn open(dir: &Path, size: &str, on_mismatch: OnMismatch) -> Result<Arc<Store>> {
        Store::open(dir, spec(size), &options(on_mismatch))
    }

    fn separate(dir: &Path, size: &str) -> Arc<Store> {
        open(dir, size, OnMismatch::Separate).unwrap()
    }

    #[test]
    fn each_identity_has_a_folder_of_its_own_and_finds_it_again() {
        let dir = tempfile::tempdir().unwrap();
        for value in 1..4 {
            compute(&separate(dir.path(), &value.to_string()), &["a"], value);
        }
        for value in 1..4 {
            assert_eq!(values(&separate(dir.path(), &value.to_string()), &["a", "b"]), [value, -1]);
        }
        let mut folders: Vec<_> = ["1", "2", "3"].map(|size| spec(size).separate_folder()).into();
        folders.sort();
        assert_eq!(modules(dir.path()).unwrap(), folders);
        assert!(folders.iter().all(|folder| crate::module_of_folder(folder) == Some("m_v1")));
    }

    #[test]
    fn the_folder_of_the_module_stays_that_of_the_identity_which_has_it() {
        let dir = tempfile::tempdir().unwrap();
        compute(&open(dir.path(), "1", OnMismatch::Refuse).unwrap(), &["a"], 1);
        compute(&separate(dir.path(), "2"), &["a"], 2);
        assert_eq!(values(&separate(dir.path(), "1"), &["a"]), [1]);
        assert_eq!(values(&open(dir.path(), "1", OnMismatch::Refuse).unwrap(), &["a"]), [1]);
        assert_eq!(modules(dir.path()).unwrap(), ["m_v1".to_owned(), spec("2").separate_folder()]);
        let refused = open(dir.path(), "2", OnMismatch::Refuse).unwrap_err();
        assert_eq!(refused.kind(), Kind::Incompatible);
        assert!(refused.to_string().contains("`OnMismatch::Separate`"), "{refused}");
        // An identity keeps its folder when that of the module is free again.
        fs::remove_dir_all(dir.path().join("m_v1")).unwrap();
        assert_eq!(values(&separate(dir.path(), "2"), &["a"]), [2]);
    }

    #[test]
    fn open_stores_are_shared_before_their_folders_exist() {
        let dir = tempfile::tempdir().unwrap();
        let plain = open(dir.path(), "1", OnMismatch::Refuse).unwrap();
        let other = separate(dir.path(), "2");
        assert!(Arc::ptr_eq(&plain, &separate(dir.path(), "1")));
        assert!(Arc::ptr_eq(&other, &separate(dir.path(), "2")));
        assert!(!Arc::ptr_eq(&plain, &other));
        compute(&plain, &["a"], 1);
        compute(&other, &["a"], 2);
        plain.flush().unwrap();
        other.flush().unwrap();
        assert_eq!((values(&plain, &["a"]), values(&other, &["a"])), (vec![1], vec![2]));
    }

    #[test]
    fn a_folder_whose_digest_collides_is_refused_and_serves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        compute(&separate(dir.path(), "1"), &["a"], 1);
        let [one, other] = ["1", "2"].map(|size| dir.path().join(spec(size).separate_folder()));
        // As if the digests of both began with the same digits.
        fs::rename(&one, &other).unwrap();
        let refused = open(dir.path(), "2", OnMismatch::Separate).unwrap_err();
        assert_eq!(refused.kind(), Kind::Incompatible);
        assert!(refused.to_string().contains("`size`: 1 in the cache, 2 in the code"), "{refused}");
    }

    #[test]
    fn a_reader_finds_the_folder_of_its_identity_and_creates_none() {
        let dir = tempfile::tempdir().unwrap();
        let read = |size| {
            let options = Options { read_only: true, ..options(OnMismatch::Separate) };
            values(&Store::open(dir.path(), spec(size), &options).unwrap(), &["a"])
        };
        compute(&open(dir.path(), "1", OnMismatch::Refuse).unwrap(), &["a"], 1);
        compute(&separate(dir.path(), "2"), &["a"], 2);
        assert_eq!((read("1"), read("2"), read("3")), (vec![1], vec![2], vec![-1]));
        assert_eq!(modules(dir.path()).unwrap().len(), 2);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_module_whose_change_0_is_damaged_is_an_error_except_for_identities_that_have_a_folder() {
        let dir = tempfile::tempdir().unwrap();
        compute(&open(dir.path(), "1", OnMismatch::Refuse).unwrap(), &["a"], 1);
        compute(&separate(dir.path(), "2"), &["a"], 2);
        let change = dir.path().join("m_v1").join(FileName::Change(0).to_string());
        fs::remove_file(&change).unwrap();
        fs::write(&change, "damaged").unwrap();
        for size in ["1", "3"] {
            assert_eq!(open(dir.path(), size, OnMismatch::Separate).unwrap_err().kind(), Kind::Corrupt);
        }
        assert_eq!(values(&separate(dir.path(), "2"), &["a"]), [2]);
    }

    #[test]
    fn identities_are_separate_in_memory_too() {
        let memory = Memory::new();
        let open = |size| Store::open_in_memory(&memory, spec(size), &options(OnMismatch::Separate)).unwrap();
        compute(&open("1"), &["a"], 1);
        compute(&open("2"), &["a"], 2);
        assert_eq!((values(&open("1"), &["a"]), values(&open("2"), &["a"])), (vec![1], vec![2]));
    }
}
