//! Folders of sockets that a server left behind when it was killed.

use crate::workers::supervisor::state::SOCKET;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// What the folders of servers are called.
pub(crate) const PREFIX: &str = "jitney-";
/// A younger folder may be that of a server which is just about to listen in it.
pub(crate) const OLD: Duration = Duration::from_secs(60);

/// Removes what servers have left behind that were killed. Whether there is still one is said by its socket and not by
/// the number of a process, which means something else in another container.
pub(crate) fn sweep(folder: &Path, old: Duration) {
    let own = rustix::process::geteuid().as_raw();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_left = |found: &Metadata| {
            let age = found.modified().ok().and_then(|at| at.elapsed().ok());
            found.is_dir() && found.uid() == own && age.is_some_and(|age| age >= old)
        };
        let socket = entry.path().join(SOCKET);
        if entry.file_name().to_string_lossy().starts_with(PREFIX)
            && entry.metadata().is_ok_and(|found| is_left(&found))
            // Something else of that name refuses connections too.
            && std::fs::symlink_metadata(&socket).is_ok_and(|found| found.file_type().is_socket())
            && UnixStream::connect(&socket).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
        {
            // Nothing else is ever put there: a folder that holds more is somebody else's, and stays.
            let is_alone = std::fs::read_dir(entry.path()).is_ok_and(|found| found.count() == 1);
            if is_alone && std::fs::remove_file(&socket).is_ok() {
                let _ = std::fs::remove_dir(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn folders_in_which_nobody_listens_are_removed_and_no_others() {
        let place = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let path = place.path().join(name);
            std::fs::create_dir(&path).unwrap();
            path
        };
        let (left, served, foreign, empty) =
            (folder("jitney-left"), folder("jitney-served"), folder("other-left"), folder("jitney-empty"));
        let (project, shared) = (folder("jitney-project"), folder("jitney-shared"));
        let listen = |path: &Path| UnixListener::bind(path.join(SOCKET)).unwrap();
        drop((listen(&left), listen(&foreign), listen(&shared)));
        std::fs::create_dir(project.join(SOCKET)).unwrap();
        std::fs::write(shared.join("notes"), "dear").unwrap();
        let _server = listen(&served);
        sweep(place.path(), Duration::from_secs(60));
        assert!(left.exists(), "it may be about to listen");
        sweep(place.path(), Duration::ZERO);
        assert!(!left.exists());
        assert!([&served, &foreign, &empty, &project, &shared.join("notes")].iter().all(|path| path.exists()));
    }
}
