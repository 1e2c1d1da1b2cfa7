//! Schemas to which several places of the document refer by name.

use serde_json::{Map, Value, json};

/// Where a JSON Schema keeps the types that it refers to.
const LOCAL: &str = "#/$defs/";
/// Where an `OpenAPI` document keeps them.
const SHARED: &str = "#/components/schemas/";

/// The members of `components.schemas`.
#[derive(Debug)]
pub(crate) struct Components(Map<String, Value>);

impl Components {
    /// With the schemas of the server's own.
    pub(crate) fn new(schemas: Map<String, Value>) -> Components {
        Components(schemas)
    }

    /// The schema of an item or answer, ready to stand anywhere in the document: the types in its `$defs` become
    /// components. Types of the same name in two deployments share a component if they are equal; otherwise the later
    /// one gets the name of its deployment in front.
    pub(crate) fn adopt(&mut self, deployment: &str, mut schema: Value) -> Value {
        let Some(Value::Object(definitions)) = schema.as_object_mut().and_then(|top| top.remove("$defs")) else {
            return schema;
        };
        let mut prefix = String::new();
        let mut tries = 1;
        let adopted = loop {
            let renamed: Map<_, _> = definitions
                .iter()
                .map(|(name, definition)| {
                    let mut definition = with_shared_refs(definition, &prefix);
                    // Generators of clients name a class by its title: two classes of one name would be one.
                    if !prefix.is_empty() && definition["title"].is_string() {
                        definition["title"] = json!(component(&prefix, name));
                    }
                    (component(&prefix, name), definition)
                })
                .collect();
            if renamed.iter().all(|(name, definition)| self.0.get(name).is_none_or(|known| known == definition)) {
                break renamed;
            }
            prefix = if tries == 1 { format!("{deployment}_") } else { format!("{deployment}_{tries}_") };
            tries += 1;
        };
        self.0.extend(adopted);
        with_shared_refs(&schema, &prefix)
    }

    /// Like `adopt`, but an object with a title becomes a component too, under its title. So generated clients have one
    /// class for it, however often it is used.
    pub(crate) fn adopt_by_name(&mut self, deployment: &str, mut schema: Value) -> Value {
        let name = schema["title"].as_str().map(str::to_owned);
        let Some(name) = name.filter(|name| schema["properties"].is_object() && schema["$defs"].get(name).is_none())
        else {
            return self.adopt(deployment, schema);
        };
        let taken = schema.as_object_mut().and_then(|top| top.remove("$defs"));
        let mut definitions = taken.unwrap_or_else(|| json!({}));
        definitions[&name] = schema;
        self.adopt(deployment, json!({ "$ref": format!("{LOCAL}{name}"), "$defs": definitions }))
    }

    /// All of them.
    pub(crate) fn into_json(self) -> Value {
        json!(self.0)
    }
}

/// A name that `OpenAPI` allows for a component: that of a generic type has brackets.
fn component(prefix: &str, name: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    format!("{prefix}{}", name.chars().map(allowed).collect::<String>())
}

/// The same schema with references to components. References stand under `$ref`, and in the `mapping` of a tagged union.
fn with_shared_refs(schema: &Value, prefix: &str) -> Value {
    let shared =
        |text: &str| text.strip_prefix(LOCAL).map(|name| json!(format!("{SHARED}{}", component(prefix, name))));
    match schema {
        Value::Array(all) => all.iter().map(|each| with_shared_refs(each, prefix)).collect(),
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| {
                let rewritten = match value {
                    Value::String(text) if name == "$ref" => shared(text),
                    Value::Object(choices) if name == "mapping" => Some(
                        choices
                            .iter()
                            .map(|(tag, value)| {
                                (tag.clone(), value.as_str().and_then(shared).unwrap_or_else(|| value.clone()))
                            })
                            .collect(),
                    ),
                    _ => None,
                };
                (name.clone(), rewritten.unwrap_or_else(|| with_shared_refs(value, prefix)))
            };
            members.iter().map(member).collect()
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(price: &Value) -> Value {
        json!({
            "properties": { "items": { "items": { "$ref": "#/$defs/Item[int]" } } },
            "$defs": { "Item[int]": { "properties": { "price": price, "part": { "$ref": "#/$defs/Item[int]" } } } },
        })
    }

    #[test]
    fn types_of_one_name_are_shared_if_they_are_equal_and_told_apart_if_not() {
        let mut components = Components::new(Map::new());
        let reference = |schema: &Value| schema["properties"]["items"]["items"]["$ref"].as_str().unwrap().to_owned();
        let first = components.adopt("a", order(&json!({ "type": "integer" })));
        assert_eq!(reference(&first), "#/components/schemas/Item_int_");
        assert_eq!(components.adopt("b", order(&json!({ "type": "integer" }))), first);
        let other = components.adopt("b", order(&json!({ "type": "string" })));
        assert_eq!(reference(&other), "#/components/schemas/b_Item_int_");
        let third = components.adopt("b", order(&json!({ "type": "null" })));
        assert_eq!(reference(&third), "#/components/schemas/b_2_Item_int_");
        let all = components.into_json();
        assert_eq!(all.as_object().unwrap().len(), 3);
        assert_eq!(all["b_Item_int_"]["properties"]["part"]["$ref"], "#/components/schemas/b_Item_int_");
    }

    #[test]
    fn objects_with_a_title_become_components() {
        let mut components = Components::new(Map::new());
        let mut titled = order(&json!({ "type": "integer" }));
        titled["title"] = json!("Order");
        assert_eq!(components.adopt_by_name("m", titled), json!({ "$ref": "#/components/schemas/Order" }));
        let untitled = json!({ "type": "string" });
        assert_eq!(components.adopt_by_name("m", untitled.clone()), untitled);
        let all = components.into_json();
        assert_eq!(all["Order"]["properties"]["items"]["items"]["$ref"], "#/components/schemas/Item_int_");
        assert!(all["Order"].get("$defs").is_none());
    }

    #[test]
    fn tagged_unions_and_types_that_refer_to_themselves_point_to_components() {
        let mut components = Components::new(Map::new());
        let union = json!({
            "discriminator": { "propertyName": "kind", "mapping": { "cat": "#/$defs/Cat" } },
            "anyOf": [{ "$ref": "#/$defs/Cat" }],
            "$defs": { "Cat": { "properties": { "$ref": { "type": "string" } } } },
        });
        let union = components.adopt("m", union);
        assert_eq!(union["discriminator"]["mapping"]["cat"], "#/components/schemas/Cat");
        assert!(union.get("$defs").is_none());
        let node = json!({ "$ref": "#/$defs/Node", "$defs": { "Node": { "type": "object" } } });
        assert_eq!(components.adopt("m", node), json!({ "$ref": "#/components/schemas/Node" }));
    }
}
