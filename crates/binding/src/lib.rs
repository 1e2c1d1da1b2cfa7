//! The rim: what Python sees of the Rust side, as one list. No rule lives here.
//!
//! Floors, from the ground: `errors`, `buffer`, `batch`, `results`, `link`, `tables`, `log_output`, `server`, `program`.

mod batch;
mod buffer;
mod errors;
mod link;
mod log_output;
mod program;
mod results;
mod server;
mod tables;

use pyo3::prelude::*;

/// A request allocates and frees a dozen small pieces, often on different threads: what the C library does worst.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `jitney._core`; described in `_core.pyi`.
#[pymodule(gil_used = false)]
mod _core {
    use super::{Bound, PyModule, PyResult, pymodule_init};

    #[pymodule_export]
    use super::batch::Batch;
    #[pymodule_export]
    use super::buffer::Tensor;
    #[pymodule_export]
    use super::link::Link;
    #[pymodule_export]
    use super::program::asks::Asks;
    #[pymodule_export]
    use super::program::engine::{Engine, Entrance, Remote, Starting};
    #[pymodule_export]
    use super::program::mailbox::Mailbox;
    #[pymodule_export]
    use super::program::stream::Stream;
    #[pymodule_export]
    use super::program::watcher::Watcher;
    #[pymodule_export]
    use super::results::Results;
    #[pymodule_export]
    use super::server::{InlineServer, adopt_parent, live_page, serve, work};
    #[pymodule_export]
    use super::tables::{check_manifest, check_options, metrics, outcomes, reserved_names};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        pymodule_init(module)
    }
}

fn pymodule_init(module: &Bound<'_, PyModule>) -> PyResult<()> {
    use jitney_server::values::tensor::Tag;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    for (name, tag) in [
        ("TAG_JSON", Tag::Json),
        ("TAG_MSGPACK", Tag::Msgpack),
        ("TAG_TEXT", Tag::Text),
        ("TAG_BYTES", Tag::Bytes),
        ("TAG_TENSOR", Tag::Tensor),
    ] {
        module.add(name, tag as u8)?;
    }
    Ok(())
}
