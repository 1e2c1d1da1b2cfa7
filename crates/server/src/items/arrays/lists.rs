//! Arrays out of documents: numbers go straight from the parser into the buffer that travels to the worker.

use crate::items::arrays::parameter::{check, dtype, fixed};
use crate::items::arrays::shape::AXES;
use crate::items::document::{Document, invalid};
use crate::items::half;
use crate::values::answer::Failure;
use crate::values::call::Part;
use crate::values::chunks::Chunks;
use crate::values::tensor::{Dtype, Tag, TensorType};
use bytes::Bytes;
use jitney_core::config::manifest::ArraySpec;
use jitney_core::tables::outcome::Outcome;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use smallvec::SmallVec;
use std::fmt;

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
            Some(_) => Err(self.refuse("expected lists of equal length at each depth, got a number next to a list")),
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
            return Err(filler.refuse("expected lists of equal length at each depth, got a list next to a number"));
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
