//! What dicts and lists of Python hold, to see quickly whether anything in them was replaced.

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;
use pyo3::types::{PyDict, PyList, PyType};

/// A dict, and the keys and values that were read from it.
type Dict<'py> = (Bound<'py, PyDict>, Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>);
/// A list, and the items that were read from it.
type List<'py> = (Bound<'py, PyList>, Vec<Bound<'py, PyAny>>);
/// An object, and the class and the `__dict__` that it had.
type Instance<'py> = (Bound<'py, PyAny>, Bound<'py, PyType>, Bound<'py, PyAny>);

/// The keys and the values of a dict.
type Pairs = Vec<(Py<PyAny>, Py<PyAny>)>;

/// What was read from some dicts and lists, and the classes and dicts that some objects had.
///
/// It keeps the objects, so that another object never gets the address of one that is gone.
#[pyclass(frozen, module = "tcx_cache._native")]
pub(crate) struct Contents {
    dicts: Vec<(Py<PyDict>, Pairs)>,
    lists: Vec<(Py<PyList>, Vec<Py<PyAny>>)>,
    instances: Vec<(Py<PyAny>, Py<PyType>, Py<PyAny>)>,
}

#[pymethods]
impl Contents {
    /// What was read from the containers, which may hold other objects by now.
    #[new]
    fn new(dicts: Vec<Dict<'_>>, lists: Vec<List<'_>>, instances: Vec<Instance<'_>>) -> Self {
        let pairs = |items: Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>)>| {
            items.into_iter().map(|(key, value)| (key.unbind(), value.unbind())).collect()
        };
        let items = |items: Vec<Bound<'_, PyAny>>| items.into_iter().map(Bound::unbind).collect();
        Self {
            dicts: dicts.into_iter().map(|(dict, read)| (dict.unbind(), pairs(read))).collect(),
            lists: lists.into_iter().map(|(list, read)| (list.unbind(), items(read))).collect(),
            instances: instances
                .into_iter()
                .map(|(own, class, dict)| (own.unbind(), class.unbind(), dict.unbind()))
                .collect(),
        }
    }

    /// The garbage collector frees a module that holds its own handle. `__clear__` is not needed, as for a tuple: there is no cycle without
    /// an object that can be changed.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        for (dict, read) in &self.dicts {
            visit.call(dict)?;
            read.iter().try_for_each(|(key, value)| visit.call(key).and_then(|()| visit.call(value)))?;
        }
        for (list, read) in &self.lists {
            visit.call(list)?;
            read.iter().try_for_each(|item| visit.call(item))?;
        }
        for (own, class, dict) in &self.instances {
            visit.call(own)?;
            visit.call(class)?;
            visit.call(dict)?;
        }
        Ok(())
    }

    /// Whether the containers hold the same objects in the same order, and the objects have the same classes and dicts. No code of Python
    /// runs while a container is read, so that it does not change; without a GIL, it is locked.
    fn are_same(&self, py: Python<'_>) -> bool {
        let is_same_dict = |(dict, read): &(Py<PyDict>, Pairs)| {
            let dict = dict.bind(py);
            let mut read_items = read.iter();
            with_critical_section(dict, || {
                dict.len() == read.len()
                    && dict.iter().all(|(key, value)| {
                        read_items.next().is_some_and(|own| key.is(&own.0) && value.is(&own.1))
                    })
            })
        };
        let is_same_list = |(list, read): &(Py<PyList>, Vec<Py<PyAny>>)| {
            let list = list.bind(py);
            with_critical_section(list, || {
                list.len() == read.len() && list.iter().zip(read).all(|(item, own)| item.is(own))
            })
        };
        self.dicts.iter().all(is_same_dict)
            && self.lists.iter().all(is_same_list)
            && self.instances.iter().all(|(own, class, dict)| {
                let own = own.bind(py);
                own.get_type().is(class) && own.getattr(intern!(py, "__dict__")).is_ok_and(|now| now.is(dict))
            })
    }
}
