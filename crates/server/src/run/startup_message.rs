//! What the terminal shows once the server is ready: a line that works.

use crate::protocols::connection::listen::Listener;
use jitney_core::config::manifest::serde_json_value::Value;
use jitney_core::config::manifest::{DeploymentManifest, InputKind};
use std::collections::BTreeMap;

/// A `curl` command that calls a deployment with its first example; `None` where that takes more than a line. A key is
/// left to the shell: it is never shown.
pub fn curl_line(address: &Place, manifest: &DeploymentManifest, has_keys: bool) -> Option<String> {
    let (socket, base) = match address.address.strip_prefix("unix:") {
        Some(path) => (format!("--unix-socket {path} "), "http://localhost".to_owned()),
        None => (String::new(), address.url()),
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

/// Where the server listens.
#[derive(Clone, Debug)]
pub struct Place {
    /// With the real port.
    pub address: String,
    /// Whether clients speak HTTPS there.
    pub is_protected: bool,
}

impl Place {
    /// That of a listener.
    pub fn of(listener: &Listener) -> Place {
        Place { address: listener.local_address(), is_protected: listener.is_protected() }
    }

    /// What a person types into a browser; a Unix socket has no such thing and stays unchanged.
    pub fn url(&self) -> String {
        let scheme = if self.is_protected { "https" } else { "http" };
        let host = self.address.strip_prefix("tcp:");
        host.map_or_else(|| self.address.clone(), |host| format!("{scheme}://{host}"))
    }
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
