//! comings
