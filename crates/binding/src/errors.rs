//! Errors of the link as Python exceptions.

use pyo3::PyErr;
use pyo3::exceptions::PyConnectionError;

/// The link to the front has ended.
pub(crate) fn lost(error: &std::io::Error) -> PyErr {
    PyConnectionError::new_err(format!("the link to the front is lost: {error}"))
}
