//! What the terminal shows once the server is ready: a line that works.

use jitney_core::config::manifest::serde_json_value::Value;
use jitney_core::config::manifest::{DeploymentManifest, InputKind};
use std::collections::BTreeMap;

/// A `curl` command that calls a deployment with its first example; `None` where that takes more than a line. A key is
/// left to the shell: it is never shown.
pub fn curl_line(address: &str, manifest: &DeploymentManifest, has_keys: bool) -> Option<String> {
    let (socket, base) = match address.strip_prefix("unix:") {
        Some(path) => (format!("--unix-socket {path} "), "http://localhost".to_owned()),
        None => (String::new(), url(address)),
    };
    let url = match &manifest.route {
        Some(route) => format!("{base}{route}"),
        None => format!("{base}/{}", manifest.name),
    };
    let body = match manifest.input.kind {
        InputKind::Image => "-H 'content-type: image/png' --data-binary @FILE.png".to_owned(),
        InputKind::Bytes => "-H 'content-type: application/octet-stream' --data-binary @FILE".to_owned(),
        InputKind::Text | InputKind::Object | InputKind::Arrays => {
            let example = json(manifest.examples.first()?)?;
            format!("-H 'content-type: application/json' -d '{}'", example.replace('\'', r"'\''"))
        }
    };
    let key = if has_keys { "-H \"x-api-key: $JITNEY_CLIENT_KEY\" " } else { "" };
    let (flags, accept) = match manifest.output.part {
        Some(_) => ("-sN", "-H 'accept: text/event-stream' "),
        None => ("-s", ""),
    };
    Some(format!("curl {flags} {socket}{url} {key}{accept}{body}"))
}

/// What a person types into a browser; a Unix socket has no such thing and stays unchanged.
pub fn url(address: &str) -> String {
    address.strip_prefix("tcp:").map_or_else(|| address.to_owned(), |host| format!("http://{host}"))
}

/// Which options are not at their defaults, and who set them. All of them are at `/config`.
pub fn settings_line(whose: &str, options: &impl serde::Serialize, sources: &BTreeMap<String, String>) -> String {
    let values = serde_json::to_value(options).unwrap_or_default();
    let set = sources.iter().filter(|(_, source)| *source != "default");
    let set: Vec<String> = set.map(|(name, source)| format!("{name}={} ({source})", values[name])).collect();
    let set = if set.is_empty() { "all options at their defaults".to_owned() } else { set.join(", ") };
    format!("{whose}: {set}; see /config")
}

/// The example on one line, unless it is too long to be typed.
fn json(example: &Value) -> Option<String> {
    serde_json::to_string(example).ok().filter(|text| text.len() <= 200)
}
