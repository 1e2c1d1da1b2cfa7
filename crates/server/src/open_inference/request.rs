//! One request, however it came, and what its parameters mean.

use crate::open_inference::tensor::{Tensor, quoted};
use crate::values::answer::Failure;
use jitney_core::request::Priority;
use jitney_core::tables::outcome::Outcome;
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use std::fmt;
use std::time::Duration;

/// A value that a client gives in addition to its tensors.
#[derive(Clone, Debug, PartialEq)]
pub enum Parameter {
    /// true or false
    Bool(bool),
    /// an integer
    Int(i64),
    /// an integer beyond 63 bits
    Uint(u64),
    /// any other number
    Double(f64),
    /// a string
    Text(String),
}

/// Out of JSON. Lists and objects are refused as they begin: they are not read, and they would grow while they are parsed.
impl<'de> Deserialize<'de> for Parameter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Parameter, D::Error> {
        deserializer.deserialize_any(Scalar)
    }
}

struct Scalar;

impl Visitor<'_> for Scalar {
    type Value = Parameter;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a string, a number or a boolean, as parameters are")
    }
    fn visit_bool<E: Error>(self, value: bool) -> Result<Parameter, E> {
        Ok(Parameter::Bool(value))
    }
    fn visit_i64<E: Error>(self, value: i64) -> Result<Parameter, E> {
        Ok(Parameter::Int(value))
    }
    fn visit_u64<E: Error>(self, value: u64) -> Result<Parameter, E> {
        Ok(i64::try_from(value).map_or(Parameter::Uint(value), Parameter::Int))
    }
    fn visit_f64<E: Error>(self, value: f64) -> Result<Parameter, E> {
        Ok(Parameter::Double(value))
    }
    fn visit_str<E: Error>(self, value: &str) -> Result<Parameter, E> {
        Ok(Parameter::Text(value.to_owned()))
    }
}

/// Parameters by name.
pub type Parameters = Vec<(String, Parameter)>;

/// A request for inference.
#[derive(Clone, Debug, Default)]
pub struct InferRequest {
    /// What the client calls it; comes back with the answer.
    pub id: String,
    /// Unchanged.
    pub parameters: Parameters,
    /// The inputs, by name.
    pub inputs: Vec<Tensor>,
    /// Which outputs are wanted, in this order; all if none is named.
    pub outputs: Vec<Box<str>>,
}

/// What the parameters of a request ask for.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// How long the client wants to wait.
    pub timeout: Option<Duration>,
    /// Its class.
    pub priority: Option<Priority>,
    /// After the last answer of a stream an empty one says that it was the last.
    pub empty_final_response: bool,
    /// The client's own: they come back with the answer.
    pub kept: Parameters,
}

impl Wishes {
    /// Takes the protocol's own parameters out of all.
    pub fn of(parameters: Parameters) -> Result<Wishes, Failure> {
        let mut wishes = Wishes::default();
        for (name, value) in parameters {
            match name.as_str() {
                "priority" => wishes.priority = class(whole(&name, &value)?),
                // Microseconds; 0 is none.
                "timeout" => {
                    wishes.timeout = Some(whole(&name, &value)?).filter(|&us| us > 0).map(Duration::from_micros);
                }
                "sequence_id" | "sequence_start" | "sequence_end" => refuse_sequence(&name, &value)?,
                "triton_enable_empty_final_response" => wishes.empty_final_response = flag(&name, &value)?,
                // REST's own, which has been read there.
                "binary_data_output" => drop(flag(&name, &value)?),
                name if name.starts_with("triton_") => {
                    let what = "is not known here; names that begin with triton_ are the protocol's own";
                    return Err(wrong(name, what));
                }
                _ => wishes.kept.push((name, value)),
            }
        }
        Ok(wishes)
    }

    /// Bytes of the parameters that come back with the answer.
    pub fn bytes(&self) -> usize {
        let value = |value: &Parameter| if let Parameter::Text(text) = value { text.len() } else { size_of::<i64>() };
        self.kept.iter().map(|(name, kept)| name.len() + value(kept)).sum()
    }
}

/// Refuses what the protocol lets a tensor ask for and this server cannot give. `known` are those that have been read.
pub fn check_of_tensor<'a>(tensor: &str, names: impl Iterator<Item = &'a str>, known: &[&str]) -> Result<(), Failure> {
    for name in names.filter(|name| !known.contains(name)) {
        let unknown = name.starts_with("shared_memory_") || matches!(name, "classification" | "binary_data_size");
        if unknown {
            let detail = format!(
                "parameter {} of {} is not offered by this server; send and receive tensors in the request and its answer",
                quoted(name),
                quoted(tensor)
            );
            return Err(Failure::new(Outcome::InvalidRequest, detail));
        }
    }
    Ok(())
}

/// Triton's priorities: 0 is the default, 1 the highest.
fn class(level: u64) -> Option<Priority> {
    match level {
        0 => None,
        1 => Some(Priority::High),
        2 => Some(Priority::Normal),
        _ => Some(Priority::Low),
    }
}

fn whole(name: &str, value: &Parameter) -> Result<u64, Failure> {
    match value {
        Parameter::Uint(value) => Ok(*value),
        Parameter::Int(value) if *value >= 0 => Ok(*value as u64),
        _ => Err(wrong(name, "must be a whole number of 0 or more")),
    }
}

fn flag(name: &str, value: &Parameter) -> Result<bool, Failure> {
    match value {
        Parameter::Bool(value) => Ok(*value),
        _ => Err(wrong(name, "must be true or false")),
    }
}

/// No deployment keeps anything between requests: clients that count on that would get wrong answers.
fn refuse_sequence(name: &str, value: &Parameter) -> Result<(), Failure> {
    match value {
        Parameter::Bool(false) | Parameter::Int(0) | Parameter::Uint(0) => Ok(()),
        Parameter::Text(text) if text.is_empty() => Ok(()),
        _ => Err(wrong(name, "cannot be followed: no model here keeps state between requests; leave it out")),
    }
}

fn wrong(name: &str, what: &str) -> Failure {
    Failure::new(Outcome::InvalidRequest, format!("parameter {} {what}", quoted(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, value: Parameter) -> Result<Wishes, Failure> {
        Wishes::of(vec![(name.into(), value)])
    }

    #[test]
    fn the_protocols_parameters_are_read_and_the_clients_kept() {
        assert_eq!(of("priority", Parameter::Uint(1)).unwrap().priority, Some(Priority::High));
        assert_eq!(of("priority", Parameter::Int(0)).unwrap().priority, None);
        assert_eq!(of("timeout", Parameter::Int(1500)).unwrap().timeout, Some(Duration::from_micros(1500)));
        assert_eq!(of("timeout", Parameter::Int(0)).unwrap().timeout, None);
        assert!(
            of("sequence_id", Parameter::Int(0)).is_ok() && of("sequence_id", Parameter::Text(String::new())).is_ok()
        );
        assert_eq!(of("mine", Parameter::Double(0.5)).unwrap().kept, [("mine".into(), Parameter::Double(0.5))]);
    }

    #[test]
    fn wrong_parameters_are_named() {
        for (name, value) in [
            ("priority", Parameter::Text("high".into())),
            ("timeout", Parameter::Int(-1)),
            ("sequence_id", Parameter::Int(7)),
            ("sequence_start", Parameter::Bool(true)),
            ("triton_final_response", Parameter::Bool(true)),
            ("binary_data_output", Parameter::Int(1)),
        ] {
            assert!(of(name, value).unwrap_err().detail.contains(name), "{name}");
        }
        assert!(check_of_tensor("x", ["shared_memory_region"].into_iter(), &[]).is_err());
        assert!(check_of_tensor("x", ["anything"].into_iter(), &[]).is_ok());
    }
}
