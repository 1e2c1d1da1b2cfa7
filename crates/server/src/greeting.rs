//! What the terminal shows once the server is ready: a line that works.

use jitney_core::manifest::serde_json_value::Value;
use jitney_core::manifest::{DeploymentManifest, InputKind};

/// A `curl` command that calls a deployment with its first example; `None` where that takes more than a line.
pub fn curl_line(address: &str, manifest: &DeploymentManifest) -> Option<String> {
    let (socket, base) = match address.strip_prefix("unix:") {
        Some(path) => (format!("--unix-socket {path} "), "http://localhost".to_owned()),
        None => (String::new(), url(address)),
    };
    let url = format!("{base}/{}", manifest.name);
    let body = match manifest.input.kind {
        InputKind::Image => "-H 'content-type: image/png' --data-binary @FILE.png".to_owned(),
        InputKind::Bytes => "-H 'content-type: application/octet-stream' --data-binary @FILE".to_owned(),
        InputKind::Text | InputKind::Object | InputKind::Arrays => {
            let example = json(manifest.examples.first()?)?;
            format!("-H 'content-type: application/json' -d '{}'", example.replace('\'', r"'\''"))
        }
    };
    Some(format!("curl -s {socket}{url} {body}"))
}

/// What a person types into a browser; a Unix socket has no such thing and stays as it is.
pub fn url(address: &str) -> String {
    address.strip_prefix("tcp:").map_or_else(|| address.to_owned(), |host| format!("http://{host}"))
}

/// The example on one line, unless it is too long to be typed.
fn json(example: &Value) -> Option<String> {
    serde_json::to_string(example).ok().filter(|text| text.len() <= 200)
}
