//! jitney's own routes: one item, many items, and the pages of the front itself.

pub mod live;
pub(crate) mod many;
pub(crate) mod one;
pub mod pages;
