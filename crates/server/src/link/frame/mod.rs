//! The frame: a fixed header, a table, a payload region. Everything that crosses a link is one.
//!
//! ```text
//! magic "JY" u16 | version u8 | kind u8 | table length u32 | payload length u64 | table … | payload …
//! ```
//! Little-endian throughout. Lengths are checked against the limits before anything is allocated.

pub mod header;
pub mod kind;
pub mod payload;
pub mod reader;
pub(crate) mod table;
pub(crate) mod writer;
