//! The size of an image, as in `1024x512`.

use crate::protocols::openai::input::wrong;
use crate::protocols::request::headers::quoted;
use crate::protocols::request::schema::property;
use crate::values::answer::Failure;
use jitney_core::config::manifest::serde_json_value::Value as Schema;

/// What a size becomes: members of an item, with a comma before each. `asked` is what the request says; `auto` is nothing.
/// The item has the fields `width` and `height`, or a field `size` that gets the text unchanged.
pub(super) fn members(asked: Option<&str>, model: &str, schema: &Schema) -> Result<String, Failure> {
    let Some(asked) = asked.filter(|asked| *asked != "auto") else { return Ok(String::new()) };
    if property(schema, "size").is_some() {
        return Ok(format!(",\"size\":{}", serde_json::Value::from(asked)));
    }
    let (width, height) = read(asked)?;
    if property(schema, "width").is_some() && property(schema, "height").is_some() {
        return Ok(format!(",\"width\":{width},\"height\":{height}"));
    }
    let model = quoted(model.as_bytes());
    let what = format!("the images of {model} have one size, got {}; leave it out", quoted(asked.as_bytes()));
    Err(wrong("size", &what))
}

fn read(asked: &str) -> Result<(u32, u32), Failure> {
    // `parse` alone takes `+5` and `064` too.
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    let pixels = |text: &str| text.parse::<u32>().ok().filter(|_| is_plain(text));
    let read = asked.split_once('x').and_then(|(width, height)| Some((pixels(width)?, pixels(height)?)));
    let what = || format!("expected WIDTHxHEIGHT in pixels, as in 1024x512, or auto, got {}", quoted(asked.as_bytes()));
    read.ok_or_else(|| wrong("size", &what()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(asked: Option<&str>, schema: &str) -> Result<String, String> {
        let schema = serde_json::from_str(schema).unwrap();
        members(asked, "m", &schema).map_err(|failure| failure.detail)
    }

    #[test]
    fn a_size_fills_the_fields_that_an_item_has() {
        let sides = r#"{"properties": {"width": {}, "height": {}}}"#;
        assert_eq!(of(Some("64x32"), sides).unwrap(), r#","width":64,"height":32"#);
        assert_eq!(of(Some("64x32"), r#"{"properties": {"size": {}}}"#).unwrap(), r#","size":"64x32""#);
        for schema in [sides, "{}"] {
            assert_eq!((of(None, schema), of(Some("auto"), schema)), (Ok(String::new()), Ok(String::new())));
        }
        assert!(of(Some("64x32"), "{}").unwrap_err().contains("`m` have one size"));
        for wrong in [
            "64",
            "64x",
            "x64",
            "0x64",
            "-1x5",
            "64x64x64",
            "axb",
            "99999999999x1",
            "64 x 64",
            "+5x5",
            "064x064",
            "5x+5",
        ] {
            assert!(of(Some(wrong), sides).unwrap_err().contains("expected WIDTHxHEIGHT"), "{wrong}");
        }
    }
}
