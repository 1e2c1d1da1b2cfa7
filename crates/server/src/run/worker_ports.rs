//! The ports at which agents and workers of other machines connect.

use crate::base::fatal::Fatal;
use crate::link::front::port::WorkerPorts;
use crate::protocols::connection::listen::is_loopback;
use jitney_channel::{Address, Secret, Tls};
use jitney_core::config::options::ServerOptions;
use std::path::Path;

/// Binds every port of `workers_listen`.
pub(crate) async fn bind(options: &ServerOptions) -> Result<Option<WorkerPorts>, Fatal> {
    if options.workers_listen.is_empty() {
        check_unused(options).map_err(Fatal::new)?;
        return Ok(None);
    }
    let ports = listen(options).await.map_err(Fatal::new)?;
    for port in &ports.ports {
        let at = port.address().map_err(|error| Fatal::new(error.to_string()))?;
        tracing::info!("agents join at tcp:{}", at.host_and_port);
    }
    Ok(Some(ports))
}

/// Options that make no sense where no agent may join: the one for it was forgotten.
fn check_unused(options: &ServerOptions) -> Result<(), String> {
    if let Some(file) = &options.workers_secret_file {
        return Err(format!(
            "workers_secret_file = {file} is for agents, and none can join: set workers_listen (--workers-listen \
             tcp:HOST:PORT), or leave it out"
        ));
    }
    if options.local == Some(0) && options.ray_address.is_none() {
        let text =
            "local = 0 leaves no place for any worker: set workers_listen, so that agents can join, or ray_address";
        return Err(text.into());
    }
    Ok(())
}

async fn listen(options: &ServerOptions) -> Result<WorkerPorts, String> {
    let Some(file) = options.workers_secret_file.as_deref() else {
        return Err("workers_listen needs workers_secret_file; `jitney secret PATH` writes such a file".into());
    };
    let tls = Tls::read(&options.workers_tls).map_err(|error| format!("workers_tls: {error}"))?;
    let places = options.workers_listen.iter().map(|text| place("workers_listen", text));
    let places = places.collect::<Result<Vec<_>, _>>()?;
    options.workers_advertise.iter().try_for_each(|text| place("workers_advertise", text).map(drop))?;
    if let Tls::Off = tls {
        let reached = options.workers_listen.iter().find(|text| !is_loopback(text));
        if let Some(text) = reached.filter(|_| !options.allow_plain_workers) {
            return Err(format!(
                "workers_listen: `{text}` can be reached from other machines, and workers_tls is off: a program on the way \
                 reads inputs and answers, and can change them; leave workers_tls out, or pass --allow-plain-workers if \
                 the network encrypts"
            ));
        }
        tracing::warn!("workers_tls is off: what agents and workers send and get is not encrypted");
    }
    let secret = Secret::read(Path::new(file)).map_err(|error| error.to_string())?.with_tls(tls);
    WorkerPorts::listen(&places, &secret).await
}

/// `HOST:PORT` of an address of this option.
fn place(option: &str, text: &str) -> Result<String, String> {
    match text.parse::<Address>() {
        Ok(Address { host_and_port, pin: None }) => Ok(host_and_port),
        _ => Err(format!("{option}: {text:?} is not an address; write tcp:HOST:PORT")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    async fn error(change: impl FnOnce(&mut ServerOptions)) -> String {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        write!(file, "{}", "s".repeat(40)).unwrap();
        let mut options = ServerOptions {
            workers_listen: vec!["tcp:127.0.0.1:0".into()],
            workers_secret_file: Some(file.path().to_string_lossy().into()),
            ..ServerOptions::for_test()
        };
        change(&mut options);
        listen(&options).await.map_or_else(|error| error, |ports| format!("{} ports", ports.ports.len()))
    }

    #[tokio::test]
    async fn what_is_missing_or_wrong_is_named() {
        assert_eq!(error(|_| ()).await, "1 ports");
        assert!(error(|options| options.workers_secret_file = None).await.contains("`jitney secret PATH`"));
        let wrong = error(|options| options.workers_listen = vec!["127.0.0.1:0".into()]).await;
        assert!(wrong.starts_with("workers_listen: \"127.0.0.1:0\" is not an address"), "{wrong}");
        let wrong = error(|options| options.workers_advertise = Some("front".into())).await;
        assert!(wrong.starts_with("workers_advertise: \"front\" is not an address"), "{wrong}");
        let wrong = error(|options| options.workers_tls = "on".into()).await;
        assert!(wrong.starts_with("workers_tls: \"on\" is not auto, off, CERT,KEY or CERT,KEY,CA"), "{wrong}");
        let wrong = error(|options| options.workers_tls = "c.pem,k.pem".into()).await;
        assert!(wrong.starts_with("workers_tls: the certificate file c.pem cannot be read"), "{wrong}");
    }

    #[tokio::test]
    async fn options_without_the_port_that_they_need_are_refused() {
        let with = |change: fn(&mut ServerOptions)| {
            let mut options = ServerOptions::for_test();
            change(&mut options);
            check_unused(&options).err().unwrap_or_default()
        };
        assert_eq!(with(|options| options.local = Some(1)), "");
        assert!(with(|options| options.local = Some(0)).starts_with("local = 0 leaves no place"));
        assert_eq!(with(|options| (options.local, options.ray_address) = (Some(0), Some("auto".into()))), "");
        assert!(with(|options| options.workers_secret_file = Some("s".into())).contains("set workers_listen"));
    }

    #[tokio::test]
    async fn without_tls_other_machines_need_a_word_of_the_operator() {
        let off = |place: &str, is_allowed| {
            let place = place.to_owned();
            error(move |options| {
                options.workers_listen = vec![place];
                (options.workers_tls, options.allow_plain_workers) = ("off".into(), is_allowed);
            })
        };
        assert_eq!(off("tcp:127.0.0.1:0", false).await, "1 ports");
        assert!(off("tcp:0.0.0.0:0", false).await.ends_with("--allow-plain-workers if the network encrypts"));
        assert_eq!(off("tcp:0.0.0.0:0", true).await, "1 ports");
    }
}
