//! SIGHUP. A service that gets it reads again what may change while it runs. A program whose terminal was closed gets it too, and
//! ends.

use crate::base::keys::Keys;
use crate::protocols::connection::tls::Certificates;
use crate::workers::settings::Reread;
use std::fs::File;
use std::sync::Arc;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What SIGHUP means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hangup {
    /// The terminal of this process no longer exists.
    TerminalClosed,
    /// An operator, or the service manager, asks for it.
    Reread,
}

/// SIGHUPs, as a stream.
#[derive(Debug)]
pub(crate) struct Hangups {
    /// `None` under `--reload`: there SIGHUP means that the parent has ended, and another handler ends the process.
    signals: Option<Signal>,
    /// It has a terminal, and was not started with `nohup`.
    ends_with_terminal: bool,
}

impl Hangups {
    /// From now on SIGHUP does not end the process, unless another process handles it.
    pub(crate) fn new(has_parent: bool) -> std::io::Result<Hangups> {
        let ends_with_terminal = has_terminal() && !is_ignored();
        let signals = (!has_parent).then(|| signal(SignalKind::hangup())).transpose()?;
        Ok(Hangups { signals, ends_with_terminal })
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Hangup {
        match &mut self.signals {
            Some(signals) => drop(signals.recv().await),
            None => std::future::pending().await,
        }
        // The kernel takes the terminal away before it sends the signal.
        if self.ends_with_terminal && !has_terminal() { Hangup::TerminalClosed } else { Hangup::Reread }
    }
}

fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

/// Whether this process was started with SIGHUP ignored, as `nohup` does. Not known without `/proc`.
fn is_ignored() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| ignores_hangup(&status))
}

/// `SigIgn` is a mask in hexadecimal digits; SIGHUP is signal 1, its lowest bit.
fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// What may change while the server runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changeable {
    pub(crate) keys: Option<Arc<Keys>>,
    pub(crate) certificates: Option<Arc<Certificates>>,
    pub(crate) options: Option<Reread>,
}

impl Changeable {
    /// Reads all of it again, and says in the log what was read. What cannot be read stays unchanged.
    pub(crate) async fn reread(self) {
        // Files may be on a disk that does not answer, and options are read by the interpreter.
        let read = tokio::task::spawn_blocking(move || self.reread_now());
        let Ok(results) = read.await else { return tracing::error!("SIGHUP: options could not be read: a panic") };
        let (mut read, mut failed) = (vec![], vec![]);
        results.into_iter().for_each(|result| match result {
            Ok(what) => read.push(what),
            Err(why) => failed.push(why),
        });
        if read.is_empty() && failed.is_empty() {
            tracing::info!("SIGHUP: this server has nothing that is read again");
        }
        if !read.is_empty() {
            tracing::info!("SIGHUP: read again: {}", read.join("; "));
        }
        failed.iter().for_each(|why| tracing::warn!("SIGHUP: {why}; it stays as it was"));
    }

    fn reread_now(&self) -> Vec<Result<String, String>> {
        let keys = self.keys.as_ref().and_then(|keys| keys.reread());
        let certificates = self.certificates.as_ref().map(|certificates| certificates.reread());
        let options = self.options.as_ref().map(|reread| reread.0());
        [keys, certificates, options].into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_bit_says_that_it_is_ignored() {
        for (mask, is_ignored) in [("0000000000000001", true), ("0000000001001003", true), ("0000000001001000", false)]
        {
            assert_eq!(ignores_hangup(&format!("SigBlk:\t0\nSigIgn:\t{mask}\nSigCgt:\t1\n")), is_ignored, "{mask}");
        }
        assert!(!ignores_hangup(""));
    }

    #[tokio::test]
    async fn keys_are_read_again_even_if_the_file_looks_unchanged() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (first, second) = ("a-key\n", "b-key\n");
        std::fs::write(file.path(), first).unwrap();
        let keys = Arc::new(Keys::load(None, Some(file.path())).unwrap().unwrap());
        let modified = file.as_file().metadata().unwrap().modified().unwrap();
        std::fs::write(file.path(), second).unwrap();
        file.as_file().set_modified(modified).unwrap();
        Changeable { keys: Some(keys.clone()), ..Changeable::default() }.reread().await;
        assert!(keys.allows(b"b-key") && !keys.allows(b"a-key"));
        std::fs::write(file.path(), "not a key").unwrap();
        Changeable { keys: Some(keys.clone()), ..Changeable::default() }.reread().await;
        assert!(keys.allows(b"b-key"));
    }
}
