//! The numbers and strings of a table: read with every length checked, and written.

use crate::link::frame::header::FrameError;
use bytes::Buf;

/// Reads the numbers and strings of a table, checking every length.
#[derive(Clone, Debug)]
pub(crate) struct TableReader<'a>(pub(crate) &'a [u8]);

impl<'a> TableReader<'a> {
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], FrameError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(FrameError::Table("it ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, FrameError> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, FrameError> {
        self.take(2).map(|mut bytes| bytes.get_u16_le())
    }

    pub(crate) fn u32(&mut self) -> Result<u32, FrameError> {
        self.take(4).map(|mut bytes| bytes.get_u32_le())
    }

    pub(crate) fn u64(&mut self) -> Result<u64, FrameError> {
        self.take(8).map(|mut bytes| bytes.get_u64_le())
    }

    /// A string with its length in four bytes before it.
    pub(crate) fn text(&mut self) -> Result<&'a str, FrameError> {
        let len = self.u32()? as usize;
        std::str::from_utf8(self.take(len)?).map_err(|_| FrameError::Table("a text is not UTF-8"))
    }

    /// A count of entries that take at least `size` bytes each: never more than what is left can hold.
    pub(crate) fn count(&mut self, size: usize) -> Result<usize, FrameError> {
        let count = self.u32()? as usize;
        if count.saturating_mul(size) > self.0.len() {
            return Err(FrameError::Table("it announces more entries than it holds"));
        }
        Ok(count)
    }
}

/// Appends a string with its length before it.
pub(crate) fn put_text(table: &mut Vec<u8>, text: &str) {
    put_text_bytes(table, text.as_bytes());
}

/// Appends the bytes of a string with their length before them.
pub(crate) fn put_text_bytes(table: &mut Vec<u8>, text: &[u8]) {
    table.extend_from_slice(&(text.len() as u32).to_le_bytes());
    table.extend_from_slice(text);
}
