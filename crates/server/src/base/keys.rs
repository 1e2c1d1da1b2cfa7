//! Who may call: keys that the server was given, compared in constant time, never shown.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};
use subtle::{Choice, ConstantTimeEq};

/// How often the file of keys is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A key, and its name; empty without one.
struct Key {
    key: Box<[u8]>,
    name: Box<str>,
}

/// The longest name of a key that is passed on, in characters.
const MOST_NAME: usize = 64;

/// The keys of this server. Nothing that prints it prints a key.
pub struct Keys {
    /// From the environment: unchanged while the server runs.
    fixed: Vec<Key>,
    file: Option<PathBuf>,
    current: RwLock<Arc<FromFile>>,
}

/// What the file held when it was last read.
#[derive(Default)]
struct FromFile {
    keys: Vec<Key>,
    stamp: Option<Stamp>,
}

/// What shows that a file has changed: also one that was put in its place.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
    inode: u64,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("fixed", &self.fixed.len()).field("file", &self.file).finish_non_exhaustive()
    }
}

impl Keys {
    /// Those of a list (`JITNEY_API_KEYS`, separated by commas) and of a file (one a line; after `#` is its name), as
    /// far as they were given; `None` if neither was. The error names where a wrong key is, never the key.
    pub fn load(list: Option<&str>, file: Option<&Path>) -> Result<Option<Keys>, String> {
        if list.is_none() && file.is_none() {
            return Ok(None);
        }
        let mut fixed = Vec::new();
        for (index, key) in list.into_iter().flat_map(|list| list.split(',')).enumerate() {
            let place = || format!("JITNEY_API_KEYS: key {}", index + 1);
            fixed.extend(checked(key, "", &place)?);
        }
        let current = file.map_or_else(|| Ok(FromFile::default()), read)?;
        if fixed.is_empty() && current.keys.is_empty() {
            let place = file.map_or_else(|| "JITNEY_API_KEYS".to_owned(), |path| path.display().to_string());
            return Err(format!("{place} holds no key, so no client could call; write one, or take the option away"));
        }
        Ok(Some(Keys { fixed, file: file.map(Path::to_owned), current: RwLock::new(Arc::new(current)) }))
    }

    /// Whether this is one of the keys. Every key is compared to its end: how long it takes shows only their lengths.
    pub fn allows(&self, presented: &[u8]) -> bool {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner).clone();
        let same = |found: Choice, key: &[u8]| found | key.ct_eq(presented);
        self.fixed.iter().chain(&current.keys).map(|known| &*known.key).fold(Choice::from(0), same).into()
    }

    /// The name of this key; empty if it has none, or is not one of the keys. Compares as `allows` does.
    pub fn name_of(&self, presented: &[u8]) -> Box<str> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner).clone();
        let mut name = "";
        for known in self.fixed.iter().chain(&current.keys) {
            if known.key.ct_eq(presented).into() {
                name = &known.name;
            }
        }
        name.into()
    }

    /// Reads the file again whenever it has changed; returns never, or at once if there is none. A file that cannot be
    /// read leaves the keys as they were; one without keys admits no client.
    pub async fn follow(self: Arc<Self>) {
        let Some(path) = self.file.clone() else { return };
        let mut failed = false;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let (keys, at) = (self.clone(), path.clone());
            // Not on a thread that serves: the file may be on a disk that does not answer.
            let looked = tokio::task::spawn_blocking(move || keys.look(&at)).await;
            match looked.unwrap_or_else(|error| Err(error.to_string())) {
                Ok(changed) => {
                    failed = false;
                    if let Some(keys) = changed {
                        let keys = if keys == 1 { "1 key".to_owned() } else { format!("{keys} keys") };
                        tracing::info!("{} has changed: it holds {keys} now", path.display());
                    }
                }
                Err(error) if !failed => {
                    failed = true;
                    tracing::warn!("{error}; the keys stay as they were");
                }
                Err(_) => {}
            }
        }
    }

    /// Reads the file again, also if it looks unchanged; `None` without a file.
    pub(crate) fn reread(&self) -> Option<Result<String, String>> {
        let path = self.file.as_deref()?;
        let keys = read(path).map(|found| self.replace(found));
        Some(keys.map(|keys| format!("{keys} keys in {}", path.display())))
    }

    fn replace(&self, found: FromFile) -> usize {
        let keys = found.keys.len();
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(found);
        keys
    }

    /// How many keys the file holds now, if it has changed.
    fn look(&self, path: &Path) -> Result<Option<usize>, String> {
        let known = self.current.read().unwrap_or_else(PoisonError::into_inner).stamp;
        if stamp(path).is_some_and(|now| Some(now) == known) {
            return Ok(None);
        }
        read(path).map(|found| Some(self.replace(found)))
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    use std::os::unix::fs::MetadataExt;
    let metadata = fs::metadata(path).ok()?;
    Some(Stamp { modified: metadata.modified().ok(), length: metadata.len(), inode: metadata.ino() })
}

fn read(path: &Path) -> Result<FromFile, String> {
    // Looked at before it is read: what is written in between is found the next time.
    let stamp = stamp(path);
    let text =
        fs::read_to_string(path).map_err(|error| format!("the keys in {} cannot be read ({error})", path.display()))?;
    let mut keys = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let (key, name) = line.split_once('#').unwrap_or((line, ""));
        let place = || format!("{}: line {}", path.display(), index + 1);
        keys.extend(checked(key, name, &place)?);
    }
    Ok(FromFile { keys, stamp })
}

/// A key without the blanks around it, with its name; `None` if nothing is left.
fn checked(text: &str, name: &str, place: &dyn Fn() -> String) -> Result<Option<Key>, String> {
    let key = text.trim();
    if key.bytes().all(|byte| byte.is_ascii_graphic()) {
        let name = name.trim().chars().take(MOST_NAME).collect::<String>().into();
        return Ok((!key.is_empty()).then(|| Key { key: key.as_bytes().into(), name }));
    }
    Err(format!("{} is not a key: a key is visible ASCII without blanks", place()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn only_the_keys_themselves_are_allowed() {
        let keys = Keys::load(Some("alpha, beta,,"), None).unwrap().unwrap();
        for (presented, allowed) in [
            ("alpha", true),
            ("beta", true),
            ("", false),
            ("alph", false),
            ("alphaa", false),
            ("Alpha", false),
            ("alpha, beta", false),
        ] {
            assert_eq!(keys.allows(presented.as_bytes()), allowed, "{presented}");
        }
        assert!(!format!("{keys:?}").contains("alpha"));
        assert!(Keys::load(None, None).unwrap().is_none());
    }

    #[test]
    fn a_file_is_read_again_when_it_changes() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "# of the team\nalpha # Ada's\n\n  beta  ").unwrap();
        let keys = Keys::load(Some("always"), Some(file.path())).unwrap().unwrap();
        assert!(keys.allows(b"alpha") && keys.allows(b"beta") && keys.allows(b"always") && !keys.allows(b"gamma"));
        assert_eq!(
            [&b"alpha"[..], b"beta", b"always", b"gamma"].map(|key| keys.name_of(key).into_string()),
            ["Ada's", "", "", ""]
        );
        assert_eq!(keys.look(file.path()), Ok(None));
        writeln!(file, "gamma").unwrap();
        assert_eq!(keys.look(file.path()), Ok(Some(3)));
        assert!(keys.allows(b"gamma") && keys.allows(b"alpha"));
        // What is not a key leaves all as it was.
        writeln!(file, "secret word").unwrap();
        let error = keys.look(file.path()).unwrap_err();
        assert!(error.contains("line 6") && !error.contains("secret"), "{error}");
        assert!(keys.allows(b"gamma"));
        file.as_file().set_len(0).unwrap();
        assert_eq!(keys.look(file.path()), Ok(Some(0)));
        assert!(!keys.allows(b"gamma") && keys.allows(b"always"));
    }

    #[test]
    fn what_holds_no_key_is_refused_at_start() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (list, path) in [(Some(" , "), None), (None, Some(file.path()))] {
            assert!(Keys::load(list, path).unwrap_err().contains("holds no key"));
        }
        let error = Keys::load(Some("fine,not fine"), None).unwrap_err();
        assert!(error.contains("key 2") && !error.contains("fine"), "{error}");
        assert!(Keys::load(None, Some(Path::new("no-such-file"))).unwrap_err().contains("no-such-file"));
    }
}
