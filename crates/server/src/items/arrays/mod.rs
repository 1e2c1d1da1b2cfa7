//! Arrays as clients send them: as nested lists, as `.npy` files, as nothing but their elements.

pub mod files;
pub mod lists;
pub mod npy;
pub mod parameter;
pub(crate) mod shape;

#[cfg(test)]
mod tests;
