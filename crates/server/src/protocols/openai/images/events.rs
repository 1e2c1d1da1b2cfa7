//! Images in parts: an event for each preview, and one for the image.

use crate::protocols::openai::error;
use crate::protocols::openai::images::answer::{ImageEnvelope, file, usage, write_file};
use crate::protocols::reply::parts::events::event;
use crate::protocols::reply::parts::form::PartsForm;
use crate::values::answer::{Failure, OutputPart, StreamEnd};

/// The form of one answer.
#[derive(Debug)]
pub(super) struct ImageEvents {
    images: ImageEnvelope,
    /// Previews that the client takes.
    most: usize,
    sent: usize,
}

impl ImageEvents {
    pub(super) fn new(images: ImageEnvelope, most: usize) -> ImageEvents {
        ImageEvents { images, most, sent: 0 }
    }

    /// One event: `rest` are its members after those that all events have.
    fn write(&self, out: &mut Vec<u8>, kind: &str, values: &[OutputPart], rest: &str) -> Result<(), Failure> {
        let (image, format) = file(values)?;
        event(out, &format!("event: image_generation.{kind}\n"), |out| {
            out.extend_from_slice(format!("{{\"type\":\"image_generation.{kind}\",").as_bytes());
            write_file(out, image);
            let [size, format] = [&*self.images.size, format].map(serde_json::Value::from);
            let created = self.images.created;
            let all = format!(
                ",\"created_at\":{created},\"size\":{size},\"quality\":\"auto\",\"background\":\"auto\",\
                 \"output_format\":{format}{rest}}}"
            );
            out.extend_from_slice(all.as_bytes());
            Ok(())
        })
    }
}

impl PartsForm for ImageEvents {
    fn part(&mut self, out: &mut Vec<u8>, _item: usize, values: &[OutputPart]) -> Result<(), Failure> {
        if self.sent == self.most {
            return Ok(());
        }
        self.write(out, "partial_image", values, &format!(",\"partial_image_index\":{}", self.sent))?;
        self.sent += 1;
        Ok(())
    }

    fn end(&mut self, out: &mut Vec<u8>, _item: usize, answer: &[OutputPart], end: &StreamEnd) -> Result<(), Failure> {
        self.write(out, "completed", answer, &end.usage.map(usage).unwrap_or_default())
    }

    fn failure(&mut self, out: &mut Vec<u8>, failure: &Failure, request_id: &str) {
        error::write_event(out, failure, request_id);
    }
}
