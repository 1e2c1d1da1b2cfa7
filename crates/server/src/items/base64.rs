//! Bytes inside of JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Writes bytes as a JSON string in base64.
pub(crate) fn write(out: &mut Vec<u8>, data: &[u8]) {
    out.push(b'"');
    let start = out.len();
    out.resize(start + data.len().div_ceil(3) * 4, 0);
    let written = STANDARD.encode_slice(data, &mut out[start..]).unwrap_or(0);
    out.truncate(start + written);
    out.push(b'"');
}
