//! The one place with `unsafe`: lending Rust memory to Python through the buffer protocol, and reading memory that
//! Python lends to us.
#![allow(unsafe_code, reason = "the buffer protocol is a C interface; this file is reviewed for it")]

use bytes::Bytes;
use jitney_server::link::batch_frame::ReceivedPart;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use std::ffi::{c_char, c_int};
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

/// Memory that is lent to Python.
struct Window {
    start: *mut u8,
    len: usize,
    is_writable: bool,
}

/// Fills `view` with a window on memory that `owner` keeps alive.
///
/// # Safety
/// `view` must be valid for writes, as the interpreter promises to `__getbuffer__`, and the window must be memory that
/// lives, unmoved, for as long as `owner` does. If it is writable, Rust has no reference to it in that time; else nothing
/// changes it.
unsafe fn lend(owner: Bound<'_, PyAny>, window: &Window, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
    if !window.is_writable && flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
        return Err(PyBufferError::new_err("this memory is read-only"));
    }
    // SAFETY: `view` is valid for writes (the caller's promise). All pointers put into it live as long as `obj`, which
    // is a new reference to the owner: `buf` by the caller's promise, shape and strides inside the view itself.
    unsafe {
        (*view).obj = owner.into_ptr();
        (*view).buf = window.start.cast();
        (*view).len = window.len.cast_signed();
        (*view).readonly = c_int::from(!window.is_writable);
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

/// The payload of a batch, whose arrays Python may write to. So Rust reads and writes it by its address, and has a
/// reference only to parts that are not arrays.
#[derive(Debug)]
pub(crate) struct Payload {
    start: *mut u8,
    len: usize,
    capacity: usize,
}

// SAFETY: `Payload` owns its memory, as a `Vec` does. `restore` writes to it before a batch goes to the model, on the thread
// that took the batch. Later only code of the model writes, which shares its own arrays between threads. None of this needs
// an interpreter lock.
unsafe impl Send for Payload {}
// SAFETY: as above.
unsafe impl Sync for Payload {}

impl Payload {
    /// Takes the memory over.
    pub(crate) fn new(bytes: Vec<u8>) -> Payload {
        let mut bytes = ManuallyDrop::new(bytes);
        Payload { start: bytes.as_mut_ptr(), len: bytes.len(), capacity: bytes.capacity() }
    }

    /// The bytes of a part that is not an array. Arrays are lent to Python, so Rust has no reference to them.
    pub(crate) fn of_value(&self, part: &ReceivedPart) -> &[u8] {
        if part.tensor.is_some() || part.offset + part.len > self.len {
            return &[];
        }
        // SAFETY: the range lies in this memory, and nothing writes to it while `self` lives: the parts of a batch do not
        // overlap, and `window` and `restore` are for arrays.
        unsafe { std::slice::from_raw_parts(self.start.add(part.offset), part.len) }
    }

    /// Writes the bytes of an array over what is there, which must be as many.
    pub(crate) fn restore(&self, _py: Python<'_>, part: &ReceivedPart, bytes: &[u8]) -> PyResult<()> {
        if part.tensor.is_none() || part.len != bytes.len() || part.offset + part.len > self.len {
            return Err(PyValueError::new_err("the front sent another array than before"));
        }
        // SAFETY: the range lies in this memory; Rust has no reference to arrays in it, and `bytes` are other memory.
        unsafe { self.start.add(part.offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    fn window(&self, range: &Range<usize>) -> Window {
        assert!(range.start <= range.end && range.end <= self.len, "an array lies in its payload");
        // SAFETY: the start of the range lies in this memory, or one behind it.
        Window { start: unsafe { self.start.add(range.start) }, len: range.len(), is_writable: true }
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        // SAFETY: these are the parts of the `Vec` that `new` took over, and no view of it is left: each owns an `Arc`.
        drop(unsafe { Vec::from_raw_parts(self.start, self.len, self.capacity) });
    }
}

/// Memory that Rust owns.
#[derive(Debug)]
enum Memory {
    /// In a worker: a range of the payload of what was delivered. It can be written to.
    Delivered(Arc<Payload>, Range<usize>),
    /// In a program: a slice of the frame that the answer came in.
    Answer(Bytes),
}

/// An array in a received frame: writable in a worker, read-only in a program.
#[pyclass(frozen, module = "jitney._core")]
#[derive(Debug)]
pub(crate) struct Tensor {
    memory: Memory,
    dtype: &'static str,
    shape: Vec<u64>,
    stacked: bool,
}

impl Tensor {
    /// The bytes of `range` in a payload, which are those of an array.
    pub(crate) fn new(
        payload: Arc<Payload>,
        dtype: &'static str,
        shape: Vec<u64>,
        range: Range<usize>,
        stacked: bool,
    ) -> Tensor {
        Tensor { memory: Memory::Delivered(payload, range), dtype, shape, stacked }
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
        let window = match &tensor.memory {
            Memory::Delivered(payload, range) => payload.window(range),
            Memory::Answer(bytes) => Window { start: bytes.as_ptr().cast_mut(), len: bytes.len(), is_writable: false },
        };
        // SAFETY: the interpreter gives a valid view; this frozen object owns the memory. Nothing changes that of an answer,
        // and Rust has no reference to the arrays of a payload.
        unsafe { lend(slf.clone().into_any(), &window, view, flags) }
    }
}
