//! What the JSON Schema of an item says of its fields.

use jitney_core::config::manifest::serde_json_value::Value as Schema;

fn entry<'a>(schema: &'a Schema, name: &str) -> Option<&'a Schema> {
    if let Schema::Object(entries) = schema { entries.get(name) } else { None }
}

/// A field of an object.
pub(crate) fn property<'a>(schema: &'a Schema, name: &str) -> Option<&'a Schema> {
    entry(entry(itself(schema), "properties")?, name)
}

/// What fields of any name hold, as those of `dict[str, int]` do; `None` if that may be anything.
pub(crate) fn any_property(schema: &Schema) -> Option<&Schema> {
    entry(schema, "additionalProperties").filter(|any| matches!(any, Schema::Object(says) if !says.is_empty()))
}

/// A type that refers to itself stands among its definitions.
fn itself(schema: &Schema) -> &Schema {
    let Some(Schema::String(reference)) = entry(schema, "$ref") else { return schema };
    let named = |name| entry(entry(schema, "$defs")?, name);
    reference.strip_prefix("#/$defs/").and_then(named).unwrap_or(schema)
}

/// What a list holds, where the field may be one.
pub(crate) fn items(field: &Schema) -> Option<&Schema> {
    choices(field).find_map(|choice| entry(choice, "items"))
}

/// The schemas of a union, or the one that there is.
fn choices(field: &Schema) -> impl Iterator<Item = &Schema> {
    let any = ["anyOf", "oneOf"].iter().find_map(|name| entry(field, name));
    let many = if let Some(Schema::Array(many)) = any { &many[..] } else { std::slice::from_ref(field) };
    many.iter()
}

/// Whether a value may be of this type.
pub(crate) fn allows(field: &Schema, kind: &str) -> bool {
    let is = |name: &Schema| matches!(name, Schema::String(name) if name == kind);
    choices(field).any(|choice| match entry(choice, "type") {
        Some(Schema::Array(names)) => names.iter().any(is),
        Some(name) => is(name),
        None => false,
    })
}

/// Whether a string of this schema stands for bytes.
pub(crate) fn holds_bytes(field: &Schema) -> bool {
    choices(field).any(|choice| {
        entry(choice, "contentEncoding").is_some()
            || matches!(entry(choice, "format"), Some(Schema::String(format)) if format == "binary")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_a_type_that_refers_to_itself_are_found() {
        let schema: Schema = serde_json::from_str(
            r##"{"$ref": "#/$defs/Node", "$defs": {"Node": {"properties": {"next": {"$ref": "#/$defs/Node"}}}}}"##,
        )
        .unwrap();
        assert!(property(&schema, "next").is_some() && property(&schema, "other").is_none());
        assert_eq!(property(&Schema::Bool(true), "next"), None, "whose fields are not known has none");
    }
}
