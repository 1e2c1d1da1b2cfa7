//! The one place with `unsafe`: lending Rust memory to Python through the buffer protocol, and reading memory that
//! Python lends to us.
#![allow(unsafe_code, reason = "the buffer protocol is a C interface; this file is reviewed for it")]

use bytes::Bytes;
use jitney_server::link::worker::inbox::Delivered;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use std::ffi::{c_char, c_int};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

/// Fills `view` with a read-only window on `bytes`, which `owner` keeps alive and never changes.
///
/// # Safety
/// `view` must be valid for writes, as the interpreter promises to `__getbuffer__`, and `bytes` must be memory that
/// lives, unmoved and unchanged, for as long as `owner` does.
unsafe fn lend(owner: Bound<'_, PyAny>, bytes: &[u8], view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
    if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
        return Err(PyBufferError::new_err("this memory is read-only"));
    }
    // SAFETY: `view` is valid for writes (the caller's promise). All pointers put into it live as long as `obj`, which
    // is a new reference to the owner: `bytes` by the caller's promise, shape and strides inside the view itself.
    unsafe {
        (*view).obj = owner.into_ptr();
        (*view).buf = bytes.as_ptr().cast_mut().cast();
        (*view).len = bytes.len().cast_signed();
        (*view).readonly = 1;
        (*view).itemsize = 1;
        (*view).format = if flags & ffi::PyBUF_FORMAT == ffi::PyBUF_FORMAT {
            // A static string: it is never freed, so nothing is done on release.
            c"B".as_ptr().cast::<c_char>().cast_mut()
        } else {
            std::ptr::null_mut()
        };
        (*view).ndim = 1;
        (*view).shape =
            if flags & ffi::PyBUF_ND == ffi::PyBUF_ND { &raw mut (*view).len } else { std::ptr::null_mut() };
        (*view).strides = if flags & ffi::PyBUF_STRIDES == ffi::PyBUF_STRIDES {
            &raw mut (*view).itemsize
        } else {
            std::ptr::null_mut()
        };
        (*view).suboffsets = std::ptr::null_mut();
        (*view).internal = std::ptr::null_mut();
    }
    Ok(())
}

/// Memory of a Python object that is only read. The object stays locked against resizing while this lives.
#[derive(Debug)]
pub(crate) struct Borrowed(PyBuffer<u8>);

impl Borrowed {
    /// Borrows the bytes of a C-contiguous object of any format.
    pub(crate) fn new(object: &Bound<'_, PyAny>) -> PyResult<Borrowed> {
        let bytes = object.py().import("builtins")?.getattr("memoryview")?.call1((object,))?;
        if !bytes.getattr("c_contiguous")?.extract::<bool>()? {
            return Err(PyValueError::new_err("the array is not C-contiguous"));
        }
        // A view of plain bytes: PyBuffer insists on a matching format. An empty view cannot be cast.
        let bytes = if bytes.getattr("nbytes")?.extract::<usize>()? == 0 {
            pyo3::types::PyBytes::new(object.py(), b"").into_any()
        } else {
            bytes.call_method1("cast", ("B",))?
        };
        PyBuffer::get(&bytes).map(Borrowed)
    }

    /// The bytes.
    pub(crate) fn as_slice(&self) -> &[u8] {
        if self.0.len_bytes() == 0 {
            return &[];
        }
        // SAFETY: the buffer is C-contiguous bytes (checked by `new`) and stays exported, so neither freed nor resized,
        // while `self` lives. The worker hands over results that are not written to any more (`Results.rows` says so); a
        // model that breaks this would send torn numbers, as it would with any C library that takes arrays.
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast::<u8>(), self.0.len_bytes()) }
    }
}

/// Below this a copy is cheaper than a loan.
const COPY_BELOW: usize = 64 << 10;
/// Loans that the engine has let go of. Only a thread that holds the interpreter lock may end them.
static RETURNED: Mutex<Vec<Borrowed>> = Mutex::new(Vec::new());

/// Python's memory in the hands of the engine.
///
/// It outlives a call that was cancelled, for as long as the engine takes to hear of that and a link to write what it has
/// begun. Until then it can be neither freed nor resized, so whatever is read is memory of this object. It can be written
/// to, by a program that takes the call for ended: what is then read is torn, and is that of an item whose answer no caller
/// gets. Lengths and types were noted when it was lent and are not read from it; what Rust parses (text, documents) is a
/// copy or cannot be written to (`parsed_bytes`).
struct Lent {
    memory: Option<Borrowed>,
    /// Wakes who gives it back.
    bell: Option<Waker>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], Borrowed::as_slice)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        RETURNED.lock().unwrap_or_else(PoisonError::into_inner).extend(self.memory.take());
        self.bell.take().into_iter().for_each(Waker::wake);
    }
}

/// The bytes of a C-contiguous object for the engine: a copy if they are few, else its own memory, which must not change
/// until the call has ended. `bell` is rung when the engine has let go of it, for somebody to call `give_back`.
pub(crate) fn lend_bytes(object: &Bound<'_, PyAny>, bell: Option<&Waker>) -> PyResult<Bytes> {
    if let Ok(bytes) = object.cast_exact::<PyBytes>()
        && bytes.as_bytes().len() < COPY_BELOW
    {
        return Ok(Bytes::copy_from_slice(bytes.as_bytes()));
    }
    let borrowed = Borrowed::new(object)?;
    if borrowed.as_slice().len() < COPY_BELOW {
        return Ok(Bytes::copy_from_slice(borrowed.as_slice()));
    }
    Ok(Bytes::from_owner(Lent { memory: Some(borrowed), bell: bell.cloned() }))
}

/// The bytes of a C-contiguous object that the engine parses: a copy, unless they are of a `bytes`, which no code can write
/// to. Rust may not look into memory that changes under its eyes.
pub(crate) fn parsed_bytes(object: &Bound<'_, PyAny>, bell: Option<&Waker>) -> PyResult<Bytes> {
    if object.is_exact_instance_of::<PyBytes>() {
        return lend_bytes(object, bell);
    }
    Ok(Bytes::copy_from_slice(Borrowed::new(object)?.as_slice()))
}

/// Ends the loans that the engine has let go of. Called by threads that hold the interpreter lock.
pub(crate) fn give_back() {
    let returned = std::mem::take(&mut *RETURNED.lock().unwrap_or_else(PoisonError::into_inner));
    drop(returned);
}

/// Memory that Rust owns.
#[derive(Debug)]
enum Memory {
    /// In a worker: a range of the payload of what was delivered.
    Delivered(Arc<Delivered>, Range<usize>),
    /// In a program: a slice of the frame that the answer came in.
    Answer(Bytes),
}

/// A read-only array in a received frame.
#[pyclass(frozen, module = "jitney._core")]
#[derive(Debug)]
pub(crate) struct Tensor {
    memory: Memory,
    dtype: &'static str,
    shape: Vec<u64>,
    stacked: bool,
}

impl Tensor {
    /// The bytes of `range` in the payload of what was delivered.
    pub(crate) fn new(
        delivered: Arc<Delivered>,
        dtype: &'static str,
        shape: Vec<u64>,
        range: Range<usize>,
        stacked: bool,
    ) -> Tensor {
        Tensor { memory: Memory::Delivered(delivered, range), dtype, shape, stacked }
    }

    /// An array of an answer.
    pub(crate) fn of_answer(bytes: Bytes, dtype: &'static str, shape: Vec<u64>) -> Tensor {
        Tensor { memory: Memory::Answer(bytes), dtype, shape, stacked: false }
    }
}

#[pymethods]
impl Tensor {
    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    #[getter]
    fn stacked(&self) -> bool {
        self.stacked
    }

    #[allow(clippy::needless_pass_by_value, reason = "PyO3 gives the object by value")]
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let tensor = slf.get();
        let bytes = match &tensor.memory {
            Memory::Delivered(delivered, range) => &delivered.batch.payload[range.clone()],
            Memory::Answer(bytes) => &bytes[..],
        };
        // SAFETY: the interpreter gives a valid view; the memory is owned, and never changed, by this frozen object.
        unsafe { lend(slf.clone().into_any(), bytes, view, flags) }
    }
}
