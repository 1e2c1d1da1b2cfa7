//! The protocol's names of element types.

use crate::open_inference::messages::inference::DataType;
use crate::values::tensor::Dtype;

/// An element type of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datatype {
    /// Numbers and booleans: what arrays hold.
    Fixed(Dtype),
    /// Strings of any bytes.
    Bytes,
}

/// The protocol's name of each dtype, in the order of `Dtype::ALL`, and its number in a model's configuration.
const NAMES: [(&str, DataType); 12] = [
    ("BOOL", DataType::TypeBool),
    ("UINT8", DataType::TypeUint8),
    ("UINT16", DataType::TypeUint16),
    ("UINT32", DataType::TypeUint32),
    ("UINT64", DataType::TypeUint64),
    ("INT8", DataType::TypeInt8),
    ("INT16", DataType::TypeInt16),
    ("INT32", DataType::TypeInt32),
    ("INT64", DataType::TypeInt64),
    ("FP16", DataType::TypeFp16),
    ("FP32", DataType::TypeFp32),
    ("FP64", DataType::TypeFp64),
];

impl Datatype {
    /// The type of this name.
    pub fn parse(name: &str) -> Option<Datatype> {
        if name == "BYTES" {
            return Some(Datatype::Bytes);
        }
        NAMES.iter().position(|(known, _)| *known == name).map(|place| Datatype::Fixed(Dtype::ALL[place]))
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Datatype::Fixed(dtype) => NAMES[dtype as usize].0,
            Datatype::Bytes => "BYTES",
        }
    }

    /// Its number in a model's configuration.
    pub fn number(self) -> DataType {
        match self {
            Datatype::Fixed(dtype) => NAMES[dtype as usize].1,
            Datatype::Bytes => DataType::TypeString,
        }
    }

    /// The names of all element types.
    pub fn names() -> Vec<&'static str> {
        NAMES.iter().map(|(name, _)| *name).chain(["BYTES"]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_has_a_name_of_its_own() {
        for dtype in Dtype::ALL {
            let datatype = Datatype::Fixed(dtype);
            assert_eq!(Datatype::parse(datatype.name()), Some(datatype));
            assert_eq!(format!("TYPE_{}", datatype.name()), datatype.number().as_str_name());
        }
        assert_eq!((Datatype::parse("BF16"), Datatype::parse("int32")), (None, None));
    }
}
