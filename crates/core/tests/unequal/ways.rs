//! ways
