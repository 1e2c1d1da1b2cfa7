//! The ports at which agents and workers of other machines connect.

use crate::base::fatal::Fatal;
use crate::link::front::port::WorkerPorts;
use jitney_channel::Secret;
use jitney_core::config::options::ServerOptions;
use std::path::Path;

/// Binds every port of `workers_listen`.
pub(crate) async fn bind<'a>(options: &'a ServerOptions) -> Result<Option<WorkerPorts>, Fatal> {
    if options.workers_listen.is_empty() {
        return Ok(None);
    }
    let Some(file) = options.workers_secret_file.as_deref() else {
        return Err(Fatal::new("workers_listen needs workers_secret_file; `jitney secret PATH` writes such a file"));
    };
    let secret = Secret::read(Path::new(file)).map_err(|error| Fatal::new(error.to_string()))?;
    let no_address =
        |text: &str| Fatal::new(format!("workers_listen: {text:?} is not an address; write tcp:HOST:PORT"));
    let place = |text: &'a String| text.strip_prefix("tcp:").ok_or_else(|| no_address(text));
    let places = options.workers_listen.iter().map(place).collect::<Result<Vec<_>, _>>()?;
    let ports = WorkerPorts::listen(&places, &secret).await.map_err(Fatal::new)?;
    for port in &ports.ports {
        let at = port.address().map_err(|error| Fatal::new(error.to_string()))?;
        tracing::info!("agents join at tcp:{}", at.host_and_port);
    }
    Ok(Some(ports))
}
