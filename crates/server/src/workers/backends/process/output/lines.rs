//! Bytes of one stream as lines: of bounded length, without their ends.

/// A longer line is cut into pieces of at most this many bytes.
const LONGEST: usize = 16 << 10;

/// The unfinished line of a stream.
#[derive(Debug, Default)]
pub(super) struct Lines {
    unfinished: Vec<u8>,
    /// The last byte was a carriage return: a line feed after it ends no further line.
    ends_with_return: bool,
}

impl Lines {
    /// Takes bytes, and gives each line that is whole now. A carriage return ends a line too: progress bars write no other
    /// end.
    pub(super) fn push(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        for &byte in bytes {
            let follows_return = std::mem::replace(&mut self.ends_with_return, byte == b'\r');
            match byte {
                b'\n' if follows_return => {}
                b'\r' if self.unfinished.is_empty() => {}
                b'\n' | b'\r' => self.finish(&mut each),
                _ => {
                    self.unfinished.push(byte);
                    if self.unfinished.len() == LONGEST {
                        let rest = self.unfinished.split_off(whole_characters(&self.unfinished));
                        self.finish(&mut each);
                        self.unfinished = rest;
                    }
                }
            }
        }
    }

    /// Gives what has no end.
    pub(super) fn finish(&mut self, each: &mut impl FnMut(&[u8])) {
        each(&self.unfinished);
        self.unfinished.clear();
    }

    /// Whether there is a line without an end.
    pub(super) fn is_unfinished(&self) -> bool {
        !self.unfinished.is_empty()
    }
}

/// How many of these bytes are whole characters, if they are UTF-8: a character has at most four bytes.
fn whole_characters(bytes: &[u8]) -> usize {
    let start = bytes.iter().rev().take(4).position(|&byte| byte & 0xc0 != 0x80).map(|back| bytes.len() - 1 - back);
    match start {
        Some(start) if start > 0 && std::str::from_utf8(&bytes[start..]).is_err() => start,
        _ => bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(pieces: &[&[u8]]) -> Vec<String> {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        let mut each = |line: &[u8]| found.push(String::from_utf8_lossy(line).into_owned());
        pieces.iter().for_each(|piece| lines.push(piece, &mut each));
        if lines.is_unfinished() {
            lines.finish(&mut each);
        }
        found
    }

    #[test]
    fn pieces_become_lines() {
        assert_eq!(lines_of(&[b"a\nb", b"c\n", b"\nd"]), ["a", "bc", "", "d"]);
        assert_eq!(lines_of(&[b"a\r", b"\nb\r\n"]), ["a", "b"]);
        assert_eq!(lines_of(&[b"\r 1%", b"\r 2%\r", b"\r 3%\n"]), [" 1%", " 2%", " 3%"]);
        assert_eq!(lines_of(&[]), [""; 0]);
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let line = "€".repeat(LONGEST);
        let pieces = lines_of(&[line.as_bytes()]);
        assert_eq!(pieces.concat(), line);
        assert!(pieces.len() == 4 && pieces.iter().all(|piece| piece.len() <= LONGEST));
        let binary = vec![0x80; 2 * LONGEST];
        assert_eq!(lines_of(&[&binary]).len(), 2);
    }
}
