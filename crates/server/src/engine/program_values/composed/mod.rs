//! Deployments without a model: the front sends their items on to others, one after the other or to several at once.

mod composition;
mod entering;
mod failures;
mod passing;
mod running;
#[cfg(test)]
mod tests;

pub(crate) use composition::Composition;
