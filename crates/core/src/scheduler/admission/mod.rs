//! Who may enter: the bounds of the queue, the predicted wait, and the refusal of other requests.

pub mod bounds;
pub mod forecast;
pub mod hopeless;
pub mod parents;
pub mod places;
pub mod refusal;
