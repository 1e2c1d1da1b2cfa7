//! What items must agree on to share a batch. Equal keys are equal values, however they were written.

use crate::config::manifest::Scalar;
use smallvec::SmallVec;
use std::fmt::{self, Display};

/// Characters that are shown of a text.
const SHOWN: usize = 20;

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
    /// the method of a deployment that serves several; always the first part
    Method(Box<str>),
}

impl KeyPart {
    /// The part of a scalar.
    pub fn from_scalar(value: &Scalar) -> KeyPart {
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

impl Display for KeyPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyPart::Null => f.write_str("null"),
            KeyPart::Bool(value) => value.fmt(f),
            KeyPart::Int(value) => value.fmt(f),
            KeyPart::Float(bits) => write!(f, "{:?}", f64::from_bits(*bits)),
            KeyPart::Str(text) if text.chars().count() > SHOWN => {
                write!(f, "{:?}…", text.chars().take(SHOWN).collect::<String>())
            }
            KeyPart::Str(text) => write!(f, "{text:?}"),
            KeyPart::Bucket(index) => write!(f, "bucket {index}"),
            KeyPart::Tensor(_, shape) => write!(f, "array {shape:?}"),
            KeyPart::Method(name) => f.write_str(name),
        }
    }
}

/// The group key of one item; empty when the deployment does not group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GroupKey(pub SmallVec<[KeyPart; 1]>);

impl GroupKey {
    /// The method that computes these items; empty for a deployment that serves one.
    pub fn method(&self) -> &str {
        match self.0.first() {
            Some(KeyPart::Method(name)) => name,
            _ => "",
        }
    }

    /// The key of all items of the same method, whatever else they group by; empty for a deployment that serves one.
    #[must_use]
    pub fn of_method(&self) -> GroupKey {
        GroupKey(self.0.iter().take(1).filter(|part| matches!(part, KeyPart::Method(_))).cloned().collect())
    }
}

impl Display for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, part) in self.0.iter().enumerate() {
            write!(f, "{}{part}", if place == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_compare_by_value() {
        assert_eq!(KeyPart::from_scalar(&Scalar::Int(512)), KeyPart::from_scalar(&Scalar::Float(512.0)));
        assert_eq!(KeyPart::number(0.0), KeyPart::number(-0.0));
        assert_ne!(KeyPart::number(7.5), KeyPart::number(7.25));
        assert_ne!(KeyPart::from_scalar(&Scalar::Bool(true)), KeyPart::from_scalar(&Scalar::Int(1)));
    }

    #[test]
    fn a_group_is_shown_by_its_parts() {
        let array = KeyPart::Tensor(1, smallvec::smallvec![3, 224]);
        let parts = [KeyPart::Int(512), KeyPart::number(7.5), KeyPart::Str("a\"b".into()), KeyPart::Bucket(2), array];
        assert_eq!(GroupKey(parts.into_iter().collect()).to_string(), r#"512, 7.5, "a\"b", bucket 2, array [3, 224]"#);
        let long = KeyPart::Str("ß".repeat(100).into());
        assert_eq!(long.to_string(), format!("\"{}\"…", "ß".repeat(20)));
    }

    #[test]
    fn a_key_begins_with_its_method() {
        let key = |parts: &[KeyPart]| GroupKey(parts.iter().cloned().collect());
        let method = KeyPart::Method("embed".into());
        let of_one = key(&[method.clone(), KeyPart::Int(512)]);
        assert_eq!((of_one.method(), of_one.of_method()), ("embed", key(&[method])));
        let plain = key(&[KeyPart::Str("embed".into())]);
        assert_eq!((plain.method(), plain.of_method()), ("", GroupKey::default()));
        assert_eq!(of_one.to_string(), "embed, 512");
    }

    #[test]
    fn a_bucket_ends_at_its_edge() {
        let edges = [128.0, 256.0];
        let bucket = |v| KeyPart::bucket(v, &edges);
        assert_eq!((bucket(1.0), bucket(128.0)), (KeyPart::Bucket(0), KeyPart::Bucket(0)));
        assert_eq!((bucket(129.0), bucket(257.0)), (KeyPart::Bucket(1), KeyPart::Bucket(2)));
    }
}
