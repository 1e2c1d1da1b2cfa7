//! numpy's file format: a short header, then the elements.

use crate::items::arrays::shape::AXES;
use crate::values::tensor::{Dtype, TensorType};
use smallvec::SmallVec;

/// How every such file begins.
pub const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// Longest header that is read. numpy pads to 64 bytes; only huge struct dtypes, which no model takes, need more.
const LONGEST: usize = 64 * 1024;

/// What a header says: the type of the array, and where its elements begin.
pub fn parse(file: &[u8]) -> Result<(TensorType, usize), String> {
    let truncated = || "the file ends inside its header".to_owned();
    if !file.starts_with(MAGIC) {
        return Err("the file does not begin as .npy files do".into());
    }
    let version = *file.get(6).ok_or_else(truncated)?;
    let (start, length) = match version {
        1 => (10, file.get(8..10).map(|b| usize::from(u16::from_le_bytes([b[0], b[1]])))),
        2 | 3 => (12, file.get(8..12).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize)),
        other => return Err(format!("its format version is {other}; versions 1 to 3 are read")),
    };
    let length = length.ok_or_else(truncated)?;
    if length > LONGEST {
        return Err(format!("its header has {length} bytes, at most {LONGEST} are read"));
    }
    let header = file.get(start..start + length).ok_or_else(truncated)?;
    let header = std::str::from_utf8(header).map_err(|_| "its header is not text".to_owned())?;
    Ok((Header { rest: header }.read()?, start + length))
}

/// Bytes that hold any header that is read.
pub const HEADER_BYTES: usize = LONGEST + 12;

/// Reads `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`, keys in any order, and nothing else.
struct Header<'a> {
    rest: &'a str,
}

impl<'a> Header<'a> {
    fn read(mut self) -> Result<TensorType, String> {
        let (mut dtype, mut ordered, mut shape) = (None, false, None);
        self.expect("{")?;
        while !self.take("}") {
            let key = self.string()?;
            self.expect(":")?;
            match key {
                "descr" => dtype = Some(descr(self.string()?)?),
                "fortran_order" if self.take("False") => ordered = true,
                "fortran_order" => {
                    return Err("its elements are in Fortran order; save numpy.ascontiguousarray(x)".into());
                }
                "shape" => shape = Some(self.tuple()?),
                other => return Err(format!("its header has the unknown key `{other}`")),
            }
            if !self.take(",") {
                self.expect("}")?;
                break;
            }
        }
        match (dtype, ordered, shape) {
            (Some(dtype), true, Some(shape)) => Ok(TensorType { dtype, shape }),
            _ => Err("its header lacks descr, fortran_order or shape".into()),
        }
    }

    fn take(&mut self, token: &str) -> bool {
        let rest = self.rest.trim_start();
        rest.strip_prefix(token).map(|after| self.rest = after).is_some()
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.take(token) { Ok(()) } else { Err(format!("its header lacks a `{token}`")) }
    }

    fn string(&mut self) -> Result<&'a str, String> {
        let quote = if self.take("'") { '\'' } else { self.expect("\"").map(|()| '"')? };
        let (text, after) = self.rest.split_once(quote).ok_or("its header has an open string")?;
        self.rest = after;
        Ok(text)
    }

    fn tuple(&mut self) -> Result<SmallVec<[u64; 4]>, String> {
        let mut shape = SmallVec::new();
        self.expect("(")?;
        while !self.take(")") {
            self.rest = self.rest.trim_start();
            let digits = self.rest.len() - self.rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let axis = self.rest[..digits].parse().map_err(|_| "its shape is not a tuple of lengths".to_owned())?;
            self.rest = &self.rest[digits..];
            // Python 2 wrote long integers with a suffix.
            self.take("L");
            shape.push(axis);
            if shape.len() > AXES {
                return Err(format!("it has more than {AXES} axes"));
            }
            if !self.take(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(shape)
    }
}

fn descr(text: &str) -> Result<Dtype, String> {
    let found = Dtype::ALL.into_iter().find(|&dtype| {
        text.get(1..) == Some(code(dtype))
            && (text.starts_with(['<', '=']) || dtype.size() == 1 && text.starts_with('|'))
    });
    found.ok_or_else(|| format!("its dtype `{text}` is not one that is taken; save little-endian numbers or booleans"))
}

/// numpy's short name, without the byte order.
fn code(dtype: Dtype) -> &'static str {
    ["b1", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"][dtype as usize]
}

/// The header of a file of this type, to be followed by its elements.
pub fn header(array: &TensorType) -> Vec<u8> {
    use std::io::Write;
    let order = if array.dtype.size() == 1 { '|' } else { '<' };
    let mut text = Vec::with_capacity(128);
    text.extend_from_slice(MAGIC);
    text.extend_from_slice(&[1, 0, 0, 0]);
    // A Vec takes every byte.
    let _ = write!(text, "{{'descr': '{order}{}', 'fortran_order': False, 'shape': (", code(array.dtype));
    for axis in &array.shape {
        let _ = write!(text, "{axis}, ");
    }
    if array.shape.len() > 1 {
        text.truncate(text.len() - 2);
    } else if array.shape.len() == 1 {
        text.truncate(text.len() - 1);
    }
    text.extend_from_slice(b"), }");
    // Elements begin at a multiple of 64, so that they can be mapped.
    text.resize((text.len() + 1).next_multiple_of(64) - 1, b' ');
    text.push(b'\n');
    let length = (text.len() - 10) as u16;
    text[8..10].copy_from_slice(&length.to_le_bytes());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_not_taken_is_named() {
        let file = |text: &str| {
            let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
            bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
            parse(&bytes)
        };
        assert!(file("{'descr': '<f4', 'fortran_order': True, 'shape': (3,), }").unwrap_err().contains("Fortran"));
        assert!(file("{'descr': '>f4', 'fortran_order': False, 'shape': (3,), }").unwrap_err().contains(">f4"));
        assert!(file("{'descr': '|O', 'fortran_order': False, 'shape': (3,), }").unwrap_err().contains("|O"));
        assert!(file("{'descr': '<f4', 'fortran_order': False, 'shape': (-3,), }").is_err());
        let (array, _) = file("{\"shape\": (3,4), 'fortran_order': False, 'descr': '|u1'}").unwrap();
        assert_eq!((array.dtype, &array.shape[..]), (Dtype::Uint8, &[3, 4][..]));
    }

    proptest! {
        #[test]
        fn headers_survive(code in 0u8..12, shape in prop::collection::vec(0u64..1 << 40, 0..6)) {
            let array = TensorType { dtype: Dtype::from_u8(code).unwrap(), shape: shape.into_iter().collect() };
            let file = header(&array);
            prop_assert_eq!(file.len() % 64, 0);
            prop_assert_eq!(parse(&file).unwrap(), (array, file.len()));
        }

        #[test]
        fn garbage_is_refused(tail in prop::collection::vec(any::<u8>(), 0..200), version in 0u8..5) {
            let mut file = MAGIC.to_vec();
            file.push(version);
            file.extend(tail);
            let _ = parse(&file);
        }
    }
}
