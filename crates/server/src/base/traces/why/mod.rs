//! Why a request took long or failed: what is known about it, and the sentence that the log, its trace and the live page have.

pub(crate) mod facts;
pub(crate) mod numbers;
pub(crate) mod sentence;
