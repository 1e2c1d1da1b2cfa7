//! What a worker says of the target it imported: the only knowledge that the front has of user code.

use crate::config::options::DeploymentOptions;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One target's deployments.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The target as the user wrote it.
    pub target: String,
    /// What was found in it, in order of definition.
    pub deployments: Vec<DeploymentManifest>,
}

/// One deployment as its class and annotations describe it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeploymentManifest {
    /// `[A-Za-z0-9._-]{1,64}`, also its route.
    pub name: String,
    /// Set if the deployment serves several methods: which one this describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    /// A second path of the deployment, in addition to `/NAME`. Example: `/v1/predict`.
    #[serde(default)]
    pub route: Option<String>,
    /// The first paragraph of its docstring, may be empty.
    pub doc: String,
    /// The options in force.
    pub options: DeploymentOptions,
    /// Where each option came from: `default`, `decorator`, `file`, `environment`, `set`.
    pub option_sources: BTreeMap<String, String>,
    /// Constructor arguments that were given, secrets redacted.
    #[serde(default)]
    pub init: BTreeMap<String, serde_json_value::Value>,
    /// What it takes.
    pub input: Input,
    /// What it returns.
    pub output: Output,
    /// What it does for the routes of well-known APIs; `None` if it has not said.
    #[serde(default)]
    pub task: Option<Task>,
    /// What items of one batch must agree on.
    pub group_by: Vec<Term>,
    /// What an item counts against `max_batch_cost`; 1 if absent.
    pub cost: Option<Term>,
    /// The deployments that it calls, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uses: Vec<String>,
    /// The targets from which they can be served, by their names, where they are known: `file.py:Name`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub use_targets: BTreeMap<String, String>,
    /// Set if it has no model: the front carries it out with others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub composed: Option<Composed>,
    /// Example inputs as JSON (bytes as base64), for docs.
    pub examples: Vec<serde_json_value::Value>,
}

impl DeploymentManifest {
    /// The name of the deployment whose replicas compute this: its own, or that of the class of a method.
    pub fn deployment(&self) -> &str {
        self.method.as_ref().map_or(&self.name, |method| &method.deployment)
    }

    /// The path by which pages show it.
    pub fn path(&self) -> String {
        match (&self.method, &self.route) {
            (Some(_), Some(route)) if self.name != self.deployment() => route.clone(),
            _ => format!("/{}", self.name),
        }
    }
}

/// One of the methods of a deployment that serves several. They share its options, its queue and its replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Method {
    /// The name of the deployment.
    pub deployment: String,
    /// The name of the method in its class.
    pub name: String,
}

/// Which deployments the front calls for a deployment that has no model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Composed {
    /// One after the other: the answer of each is the item of the next.
    Chain {
        /// Their names, in order.
        stages: Vec<String>,
    },
    /// All at once with the same item: the answer has the answers of all.
    Together {
        /// What each answer is called, and the name of the deployment that gives it.
        members: Vec<(String, String)>,
    },
}

/// What a deployment does for the routes of well-known APIs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Task {
    /// Texts to vectors. An item is a text, or (if the input is an object) has it in its field `input`.
    Embedding {
        /// Whether `input` may be a list of tokens instead.
        takes_tokens: bool,
        /// Whether the field `dimensions` says how long the vector should be.
        takes_dimensions: bool,
    },
    /// Messages to the next one. An item is an object that has them in its field `messages`.
    Chat,
    /// A text to what comes after it. An item is a text, or (if the input is an object) has it in its field `prompt`.
    Completion {
        /// Whether `prompt` may be a list of tokens instead.
        takes_tokens: bool,
    },
    /// A text to an image. An item is a text, or (if the input is an object) has it in its field `prompt`.
    Image,
}

impl Task {
    /// What it is without what the model takes.
    pub fn kind(self) -> TaskKind {
        match self {
            Task::Embedding { .. } => TaskKind::Embedding,
            Task::Chat => TaskKind::Chat,
            Task::Completion { .. } => TaskKind::Completion,
            Task::Image => TaskKind::Image,
        }
    }
}

/// The kinds of tasks. The `OpenAI` API has a route for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskKind {
    /// Texts to vectors.
    Embedding,
    /// Messages to the next one.
    Chat,
    /// A text to what comes after it.
    Completion,
    /// A text to an image.
    Image,
}

impl TaskKind {
    /// Its name, as in `task="chat"`.
    pub fn name(self) -> &'static str {
        match self {
            TaskKind::Embedding => "embedding",
            TaskKind::Chat => "chat",
            TaskKind::Completion => "completion",
            TaskKind::Image => "image",
        }
    }

    /// The route of the `OpenAI` API that calls models of this task.
    pub fn openai_route(self) -> &'static str {
        match self {
            TaskKind::Embedding => "/v1/embeddings",
            TaskKind::Chat => "/v1/chat/completions",
            TaskKind::Completion => "/v1/completions",
            TaskKind::Image => "/v1/images/generations",
        }
    }
}

/// A JSON value without a dependency on a JSON library: schemas and examples pass through untouched.
pub mod serde_json_value {
    use serde::de::{MapAccess, Visitor};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::fmt;

    /// Any JSON value.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(untagged)]
    pub enum Value {
        /// null
        Null,
        /// true or false
        Bool(bool),
        /// an integer
        Int(i64),
        /// any other number
        Float(f64),
        /// a string
        String(String),
        /// an array
        Array(Vec<Value>),
        /// an object
        Object(Members),
    }

    /// The members of an object, in the order in which they came: that of a struct's fields is its author's.
    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct Members(Vec<(String, Value)>);

    impl Members {
        /// The member of this name; of several the last.
        pub fn get(&self, name: &str) -> Option<&Value> {
            self.0.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value)
        }

        /// All, in order.
        pub fn iter(&self) -> impl Iterator<Item = (&String, &Value)> {
            self.0.iter().map(|(name, value)| (name, value))
        }

        /// Whether there is none.
        pub fn is_empty(&self) -> bool {
            self.0.is_empty()
        }
    }

    impl Serialize for Members {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_map(self.iter())
        }
    }

    impl<'de> Deserialize<'de> for Members {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members, D::Error> {
            deserializer.deserialize_map(InOrder)
        }
    }

    struct InOrder;

    impl<'de> Visitor<'de> for InOrder {
        type Value = Members;

        fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
            formatter.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Members, A::Error> {
            let mut members = Vec::new();
            while let Some(member) = access.next_entry()? {
                members.push(member);
            }
            Ok(Members(members))
        }
    }
}

/// The kinds of input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InputKind {
    /// `list[str]`
    Text,
    /// `list[bytes]`
    Bytes,
    /// `list[jitney.Image]`
    Image,
    /// A struct, or anything else that JSON or msgpack can say.
    Object,
    /// One or several arrays, each stacked with n first.
    Arrays,
}

/// What a deployment takes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// How items are read.
    pub kind: InputKind,
    /// What `predict` calls its one parameter; of no meaning for `Arrays`, which have their own names.
    #[serde(default)]
    pub name: String,
    /// For `Arrays`: one per parameter of `predict`, in order; empty otherwise.
    pub arrays: Vec<ArraySpec>,
    /// JSON Schema of one item.
    pub schema: serde_json_value::Value,
}

/// What a deployment returns. The front renders what comes; this is for docs only.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// `text`, `bytes`, `image`, `object`, `array`, `arrays` or `any`.
    pub kind: String,
    /// Names of the arrays of an `arrays` result.
    pub arrays: Vec<ArraySpec>,
    /// JSON Schema of one answer.
    pub schema: serde_json_value::Value,
    /// What a part of the answer is, of a model that answers in parts; the rest describes the parts put together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Box<Output>>,
}

/// One array of one item (without the batch axis).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArraySpec {
    /// The parameter's or field's name.
    pub name: String,
    /// As numpy says it: `float32`, `uint8`, `bool`, …
    pub dtype: String,
    /// Axes without the batch axis; `null` is open. A `null` shape is open in rank too.
    pub shape: Option<Vec<Option<u64>>>,
    /// Whether the arrays of a batch are stacked, so that they must have one shape; else `predict` gets a list of them.
    #[serde(default = "yes")]
    pub is_stacked: bool,
}

fn yes() -> bool {
    true
}

/// One part of a group key, or the cost.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Term {
    /// Where the value comes from.
    pub source: Source,
    /// Bucket edges, ascending: the value becomes the index of the first edge that is not below it.
    pub edges: Option<Vec<f64>>,
}

/// Where a term's value comes from.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Source {
    /// A top-level field of an object.
    Field {
        /// Its name on the wire.
        name: String,
        /// Allowed types: `int`, `float`, `str`, `bool`, `none`.
        types: Vec<String>,
        /// Its constant default, which may be `null`; absent if the field must be given.
        #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
        default: Option<Scalar>,
        /// Allowed values when the type is a `Literal`, else empty.
        literals: Vec<Scalar>,
    },
    /// A length: of the item itself, or of one of its fields.
    Length {
        /// A field of an object or the name of an array parameter; `null` is the item itself.
        of: Option<String>,
        /// `characters`, `bytes` or `axis` (the first axis of an array, the elements of a list).
        unit: String,
    },
}

/// What is written, also if it is `null`: serde would take that for nothing.
fn given<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Scalar>, D::Error> {
    Scalar::deserialize(deserializer).map(Some)
}

/// A value that can be compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Scalar {
    /// `None`
    Null,
    /// a boolean
    Bool(bool),
    /// an integer
    Int(i64),
    /// a float
    Float(f64),
    /// a string
    Str(String),
}
