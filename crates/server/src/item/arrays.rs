//! Arrays out of documents: numbers go straight from the parser into the buffer that travels to the worker.

use super::{Document, half, invalid, many, npy};
use crate::call::{Chunks, Dtype, Failure, Part, Tag, TensorType};
use bytes::Bytes;
use jitney_core::group_key::KeyPart;
use jitney_core::manifest::ArraySpec;
use jitney_core::outcome::Outcome;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use smallvec::SmallVec;
use std::fmt;

/// The most axes of an array that comes in, at every door. numpy's own bound for long; a worker needs one more for the
/// batch. Also what bounds the recursion below.
pub(crate) const AXES: usize = 32;
/// The most lists that an array without elements may be. An array with elements has bytes for each of its lists; this
/// one has none, and a hundred bytes of header could ask for lists without end.
const EMPTY_LISTS: u64 = 1 << 20;

/// One part per array of `specs`, in their order. One array is the document itself; several are an object by name.
/// `most` bounds the bytes of all of them.
pub fn from_document(specs: &[ArraySpec], document: Document<'_>, most: usize) -> Result<SmallVec<[Part; 1]>, Failure> {
    let mut fillers =
        specs.iter().map(|spec| Filler::new(spec, specs.len() > 1, most)).collect::<Result<Vec<_>, _>>()?;
    let mut refused = None;
    let read = if let [filler] = &mut fillers[..] {
        document.read(Level { filler, depth: 0 })
    } else {
        document.read(Named { fillers: &mut fillers, most, refused: &mut refused })
    };
    // What we refused on purpose stopped the parser, which then complains of something else.
    if let Some(failure) = refused.or_else(|| fillers.iter_mut().find_map(|filler| filler.refused.take())) {
        return Err(failure);
    }
    read?;
    fillers.into_iter().map(Filler::finish).collect()
}

/// An array that came as a `.npy` file: its header is taken off, its elements stay where they are.
pub fn from_npy(spec: &ArraySpec, file: Chunks) -> Result<Part, Failure> {
    let (array, data) = open_npy(file)?;
    check(spec, "$", &array)?;
    part(array, data)
}

/// The rows of a `.npy` file, each an array of this parameter; their elements stay where they are.
pub fn rows_from_npy(spec: &ArraySpec, file: Chunks, most: usize) -> Result<Vec<Part>, Failure> {
    let (array, mut data) = open_npy(file)?;
    let Some((&rows, row)) = array.shape.split_first() else {
        return Err(invalid("$", "expected an array whose first axis is n, got a single number"));
    };
    let row = TensorType { dtype: array.dtype, shape: SmallVec::from_slice(row) };
    check(spec, "$[0]", &row)?;
    let rows = usize::try_from(rows).ok().filter(|&rows| rows <= most).ok_or_else(|| many::too_many(most))?;
    let length = data.len().checked_div(rows).unwrap_or(0);
    (0..rows).map(|_| part(row.clone(), data.split_to(length))).collect()
}

/// What the header of a `.npy` file says, and its elements.
fn open_npy(mut file: Chunks) -> Result<(TensorType, Chunks), Failure> {
    let malformed = |what: &str| {
        Failure::new(Outcome::MalformedBody, format!("the body is not a .npy file that can be read: {what}"))
    };
    let (array, start) = match file.0.first().map(|first| npy::parse(first)) {
        Some(Ok(parsed)) => parsed,
        // The header may be longer than the first piece.
        _ => npy::parse(&front(&file, npy::HEADER_BYTES)).map_err(|what| malformed(&what))?,
    };
    drop(file.split_to(start));
    // Of all rows together, if they are items of their own.
    check_shape(&array.shape).map_err(|what| invalid("$", &what))?;
    let Some(expected) = array.byte_len() else {
        return Err(invalid("$", &format!("expected an array that memory can hold, got {}", describe(&array))));
    };
    if expected != file.len() as u64 {
        return Err(malformed(&format!("its header speaks of {expected} bytes of elements, {} follow", file.len())));
    }
    Ok((array, file))
}

/// An array that came as nothing but its elements: dtype and shape must be fixed.
pub fn from_raw(spec: &ArraySpec, data: Chunks) -> Result<Part, Failure> {
    let array = fixed(spec).ok_or_else(|| {
        let what = format!("raw bytes do not say their shape, and the shape of `{}` is open; send application/json, application/msgpack or application/x-npy", spec.name);
        Failure::new(Outcome::UnsupportedMediaType, what)
    })?;
    if array.byte_len() != Some(data.len() as u64) {
        let expected =
            format!("expected {} bytes ({}), got {}", array.byte_len().unwrap_or(0), describe(&array), data.len());
        return Err(invalid("$", &expected));
    }
    part(array, data)
}

/// An array that came as a value: whether it is what its parameter takes, and has the bytes of its type.
pub fn check_part(spec: &ArraySpec, path: &str, part: &Part) -> Result<(), Failure> {
    let Some(array) = &part.tensor else {
        return Err(invalid(path, &format!("expected {}, got no array", expected(spec))));
    };
    check(spec, path, array)?;
    if array.byte_len() != Some(part.data.len() as u64) {
        return Err(invalid(path, &format!("{} has not {} bytes", describe(array), part.data.len())));
    }
    check_booleans(path, array, &part.data)
}

/// The parts of a group key that arrays of open shape add: only their like can be stacked.
pub fn key_parts(specs: &[ArraySpec], parts: &[Part], key: &mut SmallVec<[KeyPart; 1]>) {
    for (spec, part) in specs.iter().zip(parts) {
        if let (true, Some(array)) = (is_open(spec), &part.tensor) {
            key.push(KeyPart::Tensor(array.dtype as u8, array.shape.clone()));
        }
    }
}

/// Whether arrays of this parameter may differ in shape.
pub fn is_open(spec: &ArraySpec) -> bool {
    spec.shape.as_ref().is_none_or(|shape| shape.iter().any(Option::is_none))
}

fn dtype(spec: &ArraySpec) -> Result<Dtype, Failure> {
    Dtype::parse(&spec.dtype).ok_or_else(|| {
        let what =
            format!("the manifest names the dtype `{}` for `{}`, which the front does not know", spec.dtype, spec.name);
        Failure::new(Outcome::Internal, what)
    })
}

fn fixed(spec: &ArraySpec) -> Option<TensorType> {
    let shape = spec.shape.as_ref()?.iter().copied().collect::<Option<_>>()?;
    Some(TensorType { dtype: Dtype::parse(&spec.dtype)?, shape })
}

/// The first bytes in one piece.
fn front(chunks: &Chunks, most: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for chunk in &chunks.0 {
        bytes.extend_from_slice(&chunk[..chunk.len().min(most - bytes.len())]);
    }
    bytes
}

/// A part, once booleans have been seen to be booleans: numpy takes any byte for one, and then misbehaves.
pub fn part(array: TensorType, data: Chunks) -> Result<Part, Failure> {
    check_booleans("$", &array, &data)?;
    Ok(Part { tag: Tag::Tensor, tensor: Some(array), data })
}

fn check_booleans(path: &str, array: &TensorType, data: &Chunks) -> Result<(), Failure> {
    if array.dtype == Dtype::Bool && data.0.iter().any(|chunk| chunk.iter().any(|&byte| byte > 1)) {
        return Err(invalid(path, "expected bool elements of 0 or 1, got other bytes"));
    }
    Ok(())
}

/// Whether an array of this shape, however few its bytes, can be computed with and written as lists.
pub(crate) fn check_shape(shape: &[u64]) -> Result<(), String> {
    if shape.len() > AXES {
        return Err(format!("expected at most {AXES} axes, got {}", shape.len()));
    }
    // No list has anything in it after the first axis of no length.
    let Some(end) = shape.iter().position(|&axis| axis == 0) else { return Ok(()) };
    let lists = shape[..end].iter().try_fold((1u64, 1u64), |(outer, all), &axis| {
        let inner = outer.checked_mul(axis)?;
        Some((inner, all.checked_add(inner)?))
    });
    if lists.is_none_or(|(_, lists)| lists > EMPTY_LISTS) {
        return Err(format!("expected an array without elements to be at most {EMPTY_LISTS} empty lists, got more"));
    }
    Ok(())
}

/// Whether an array is what its parameter takes.
fn check(spec: &ArraySpec, path: &str, array: &TensorType) -> Result<(), Failure> {
    check_shape(&array.shape).map_err(|what| invalid(path, &what))?;
    let fits = spec.shape.as_ref().is_none_or(|shape| {
        shape.len() == array.shape.len()
            && shape.iter().zip(&array.shape).all(|(axis, length)| axis.is_none_or(|axis| axis == *length))
    });
    if fits && array.dtype.name() == spec.dtype {
        return Ok(());
    }
    Err(invalid(path, &format!("expected {}, got {}", expected(spec), describe(array))))
}

fn expected(spec: &ArraySpec) -> String {
    match &spec.shape {
        None => format!("{} of any shape", spec.dtype),
        Some(axes) => {
            let axes: Vec<String> =
                axes.iter().map(|axis| axis.map_or_else(|| "any".to_owned(), |length| length.to_string())).collect();
            format!("{} of shape ({})", spec.dtype, axes.join(", "))
        }
    }
}

fn describe(array: &TensorType) -> String {
    let axes: Vec<String> = array.shape.iter().map(u64::to_string).collect();
    format!("{} of shape ({})", array.dtype.name(), axes.join(", "))
}

/// One array that is being read.
struct Filler<'a> {
    spec: &'a ArraySpec,
    path: String,
    dtype: Dtype,
    data: Vec<u8>,
    /// Bytes that a body may have, and what other arrays have left of them.
    most: usize,
    room: usize,
    /// Lengths of the axes, as the first list at each depth had them.
    axes: SmallVec<[Option<u64>; 4]>,
    /// Known once a number or an empty list was seen.
    rank: Option<usize>,
    given: bool,
    refused: Option<Failure>,
}

impl<'a> Filler<'a> {
    fn new(spec: &'a ArraySpec, named: bool, most: usize) -> Result<Filler<'a>, Failure> {
        let dtype = dtype(spec)?;
        let path = if named { format!("$.{}", spec.name) } else { "$".to_owned() };
        // The size is known in advance when the shape is; a lie about it is found at the end.
        let size = fixed(spec)
            .and_then(|array| array.byte_len())
            .map_or(0, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        let data = Vec::with_capacity(size.min(most).min(64 * 1024));
        Ok(Filler {
            spec,
            path,
            dtype,
            data,
            most,
            room: most,
            axes: SmallVec::new(),
            rank: None,
            given: false,
            refused: None,
        })
    }

    fn restart(&mut self) {
        // Not cleared: the memory of what is replaced is given back.
        self.data = Vec::new();
        self.axes.clear();
        self.rank = None;
        self.given = true;
    }

    fn refuse<E: Error>(&mut self, what: &str) -> E {
        self.refused = Some(invalid(&self.path, what));
        E::custom("refused")
    }

    fn unexpected<E: Error>(&mut self, got: &str) -> E {
        let what = format!("expected {} elements, got {got}", self.dtype.name());
        self.refuse(&what)
    }

    /// A number or boolean at this depth, or an empty list above it: all must agree on the rank.
    fn at_rank<E: Error>(&mut self, depth: usize) -> Result<(), E> {
        match self.rank {
            Some(rank) if rank == depth => Ok(()),
            Some(_) => Err(self.refuse("expected lists of equal length at each depth, got a number beside a list")),
            None => {
                self.rank = Some(depth);
                Ok(())
            }
        }
    }

    fn close<E: Error>(&mut self, depth: usize, length: u64) -> Result<(), E> {
        while self.axes.len() <= depth {
            self.axes.push(None);
        }
        match self.axes[depth] {
            None => self.axes[depth] = Some(length),
            Some(first) if first == length => {}
            Some(first) => {
                let what =
                    format!("expected lists of equal length at each depth, got {first} and {length} on axis {depth}");
                return Err(self.refuse(&what));
            }
        }
        Ok(())
    }

    fn put<E: Error, const N: usize>(&mut self, bytes: [u8; N]) -> Result<(), E> {
        if self.data.len() + N > self.room {
            let what = format!(
                "{}: as elements, the arrays take more than the {} bytes that a body may have; send less, or raise max_body_bytes",
                self.path, self.most
            );
            self.refused = Some(Failure::new(Outcome::TooLarge, what));
            return Err(E::custom("refused"));
        }
        self.data.extend_from_slice(&bytes);
        Ok(())
    }

    fn boolean<E: Error>(&mut self, depth: usize, value: bool) -> Result<(), E> {
        self.at_rank(depth)?;
        if self.dtype == Dtype::Bool { self.put([u8::from(value)]) } else { Err(self.unexpected("bool")) }
    }

    fn integer<E: Error>(&mut self, depth: usize, value: i128) -> Result<(), E> {
        self.at_rank(depth)?;
        macro_rules! narrow {
            ($kind:ty) => {
                match <$kind>::try_from(value) {
                    Ok(value) => self.put(value.to_le_bytes()),
                    Err(_) => Err(self.unexpected(&format!("{value}, which is out of range"))),
                }
            };
        }
        match self.dtype {
            Dtype::Bool => Err(self.unexpected("int")),
            Dtype::Uint8 => narrow!(u8),
            Dtype::Uint16 => narrow!(u16),
            Dtype::Uint32 => narrow!(u32),
            Dtype::Uint64 => narrow!(u64),
            Dtype::Int8 => narrow!(i8),
            Dtype::Int16 => narrow!(i16),
            Dtype::Int32 => narrow!(i32),
            Dtype::Int64 => narrow!(i64),
            Dtype::Float16 | Dtype::Float32 | Dtype::Float64 => self.real(value as f64),
        }
    }

    fn float<E: Error>(&mut self, depth: usize, value: f64) -> Result<(), E> {
        self.at_rank(depth)?;
        match self.dtype {
            Dtype::Float16 | Dtype::Float32 | Dtype::Float64 => self.real(value),
            _ => Err(self.unexpected(&format!("the float {value}"))),
        }
    }

    /// In a list of floats, what others and we ourselves write for NaN, which JSON does not have.
    fn null<E: Error>(&mut self, depth: usize) -> Result<(), E> {
        match self.dtype {
            Dtype::Float16 | Dtype::Float32 | Dtype::Float64 if depth > 0 => self.float(depth, f64::NAN),
            _ => Err(self.unexpected("null")),
        }
    }

    fn real<E: Error>(&mut self, value: f64) -> Result<(), E> {
        let overflows = match self.dtype {
            Dtype::Float16 => half::from_f64(value) & 0x7fff == 0x7c00,
            Dtype::Float32 => (value as f32).is_infinite(),
            _ => false,
        };
        if overflows && value.is_finite() {
            return Err(self.unexpected(&format!("{value}, which is out of range")));
        }
        match self.dtype {
            Dtype::Float16 => self.put(half::from_f64(value).to_le_bytes()),
            Dtype::Float32 => self.put((value as f32).to_le_bytes()),
            _ => self.put(value.to_le_bytes()),
        }
    }

    fn finish(mut self) -> Result<Part, Failure> {
        let rank = self.rank.unwrap_or(0);
        let shape = (0..rank).map(|axis| self.axes.get(axis).copied().flatten().unwrap_or(0)).collect();
        let array = TensorType { dtype: self.dtype, shape };
        check(self.spec, &self.path, &array)?;
        self.data.shrink_to_fit();
        Ok(Part { tag: Tag::Tensor, tensor: Some(array), data: Chunks::from(Bytes::from(self.data)) })
    }
}

/// What stands at one depth of one array: a list of what stands one deeper, or a number.
struct Level<'f, 'a> {
    filler: &'f mut Filler<'a>,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Level<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Level<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("nested lists of numbers")
    }
    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.filler.boolean(self.depth, value)
    }
    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.filler.integer(self.depth, value.into())
    }
    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.filler.integer(self.depth, value.into())
    }
    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.filler.float(self.depth, value)
    }
    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Err(self.filler.unexpected("str"))
    }
    fn visit_bytes<E: Error>(self, _: &[u8]) -> Result<(), E> {
        Err(self.filler.unexpected("bytes"))
    }
    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.filler.null(self.depth)
    }
    fn visit_newtype_struct<D: Deserializer<'de>>(self, _: D) -> Result<(), D::Error> {
        Err(self.filler.unexpected("a msgpack extension"))
    }
    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        let hint = if self.depth == 0 { "object; send the array itself, as nested lists" } else { "object" };
        Err(self.filler.unexpected(hint))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let Level { filler, depth } = self;
        if depth == AXES {
            return Err(filler.refuse(&format!("expected at most {AXES} axes, got more")));
        }
        if filler.rank.is_some_and(|rank| rank <= depth) {
            return Err(filler.refuse("expected lists of equal length at each depth, got a list beside a number"));
        }
        let mut length = 0;
        while access.next_element_seed(Level { filler: &mut *filler, depth: depth + 1 })?.is_some() {
            length += 1;
        }
        if length == 0 && filler.rank.is_none() {
            filler.rank = Some(depth + 1);
        }
        filler.close(depth, length)
    }
}

/// An object of arrays by name.
struct Named<'f, 'a> {
    fillers: &'f mut [Filler<'a>],
    most: usize,
    refused: &'f mut Option<Failure>,
}

impl Named<'_, '_> {
    fn names(&self) -> String {
        let names: Vec<&str> = self.fillers.iter().map(|filler| filler.spec.name.as_str()).collect();
        names.join(", ")
    }

    fn refuse<E: Error>(&mut self, field: &str, what: &str) -> E {
        *self.refused = Some(invalid(field, what));
        E::custom("refused")
    }

    fn unexpected<E: Error>(mut self, got: &str) -> E {
        let what = format!("expected an object of the arrays {}, got {got}", self.names());
        self.refuse("$", &what)
    }
}

impl<'de> DeserializeSeed<'de> for Named<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Named<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("an object of arrays by name")
    }
    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Err(self.unexpected("bool"))
    }
    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Err(self.unexpected("int"))
    }
    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Err(self.unexpected("int"))
    }
    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Err(self.unexpected("float"))
    }
    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Err(self.unexpected("str"))
    }
    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Err(self.unexpected("null"))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        Err(self.unexpected("list"))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut access: A) -> Result<(), A::Error> {
        while let Some(name) = access.next_key::<String>()? {
            let Some(place) = self.fillers.iter().position(|filler| filler.spec.name == name) else {
                let shown: String = name.chars().take(80).collect();
                let what = format!("expected the arrays {}, got an unknown name", self.names());
                return Err(self.refuse(&format!("$.{shown}"), &what));
            };
            self.fillers[place].restart();
            let taken: usize = self.fillers.iter().map(|filler| filler.data.len()).sum();
            let filler = &mut self.fillers[place];
            filler.room = self.most.saturating_sub(taken);
            access.next_value_seed(Level { filler, depth: 0 })?;
        }
        match self.fillers.iter().find(|filler| !filler.given).map(|filler| filler.path.clone()) {
            Some(path) => Err(self.refuse(&path, "is missing")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
