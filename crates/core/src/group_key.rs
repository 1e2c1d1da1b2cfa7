//! What items must agree on to share a batch. Equal keys are equal values, however they were written.

use crate::manifest::Scalar;
use smallvec::SmallVec;

/// One comparable value. Numbers compare by value: `512` and `512.0` are the same part.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyPart {
    /// None
    Null,
    /// a boolean
    Bool(bool),
    /// a number with an integral value
    Int(i64),
    /// any other number, by its bits
    Float(u64),
    /// a string
    Str(Box<str>),
    /// a bucket's index
    Bucket(u32),
    /// dtype code and shape of an array
    Tensor(u8, SmallVec<[u64; 4]>),
}

impl KeyPart {
    /// The part of a scalar.
    pub fn of(value: &Scalar) -> KeyPart {
        match value {
            Scalar::Null => KeyPart::Null,
            Scalar::Bool(b) => KeyPart::Bool(*b),
            Scalar::Int(i) => KeyPart::Int(*i),
            Scalar::Float(f) => KeyPart::number(*f),
            Scalar::Str(s) => KeyPart::Str(s.as_str().into()),
        }
    }

    /// The part of a float, canonical: integral values are integers, both zeros are one.
    pub fn number(value: f64) -> KeyPart {
        // 2^53: beyond it not every integer is a float, and an integral float no longer names one integer.
        if value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0 {
            KeyPart::Int(value as i64)
        } else {
            KeyPart::Float(value.to_bits())
        }
    }

    /// The bucket of a value: the index of the first edge that is not below it, or one past the last.
    pub fn bucket(value: f64, edges: &[f64]) -> KeyPart {
        KeyPart::Bucket(edges.partition_point(|&edge| edge < value) as u32)
    }
}

/// The group key of one item; empty when the deployment does not group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GroupKey(pub SmallVec<[KeyPart; 1]>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_compare_by_value() {
        assert_eq!(KeyPart::of(&Scalar::Int(512)), KeyPart::of(&Scalar::Float(512.0)));
        assert_eq!(KeyPart::number(0.0), KeyPart::number(-0.0));
        assert_ne!(KeyPart::number(7.5), KeyPart::number(7.25));
        assert_ne!(KeyPart::of(&Scalar::Bool(true)), KeyPart::of(&Scalar::Int(1)));
    }

    #[test]
    fn a_bucket_ends_at_its_edge() {
        let edges = [128.0, 256.0];
        let bucket = |v| KeyPart::bucket(v, &edges);
        assert_eq!((bucket(1.0), bucket(128.0)), (KeyPart::Bucket(0), KeyPart::Bucket(0)));
        assert_eq!((bucket(129.0), bucket(257.0)), (KeyPart::Bucket(1), KeyPart::Bucket(2)));
    }
}
