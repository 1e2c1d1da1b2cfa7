//! The ports at which agents and workers of other machines connect.

use crate::base::fatal::Fatal;
use crate::link::front::port::Port;
use jitney_channel::Secret;
use jitney_core::config::options::ServerOptions;
use std::path::Path;

/// Binds every port of `workers_listen`.
pub(crate) async fn bind(options: &ServerOptions) -> Result<Vec<Port>, Fatal> {
    if options.workers_listen.is_empty() {
        return Ok(Vec::new());
    }
    let Some(file) = options.workers_secret_file.as_deref() else {
        return Err(Fatal::new("workers_listen needs workers_secret_file; `jitney secret PATH` writes such a file"));
    };
    let secret = Secret::read(Path::new(file)).map_err(|error| Fatal::new(error.to_string()))?;
    let mut ports = Vec::new();
    for address in &options.workers_listen {
        let place = address
            .strip_prefix("tcp:")
            .ok_or_else(|| Fatal::new(format!("workers_listen: {address:?} is not an address; write tcp:HOST:PORT")))?;
        let port = Port::listen(place, &secret).await;
        let port = port.map_err(|error| Fatal::new(format!("cannot listen on {address}: {error}")))?;
        let at = port.address().map_or_else(|_| address.clone(), |at| format!("tcp:{}", at.host_and_port));
        tracing::info!("agents join at {at}");
        ports.push(port);
    }
    Ok(ports)
}
