//! The policy of an operator's choice. A new policy has a line here.

use crate::config::rules::PolicyChoice;
use crate::policy::auto::Auto;
use crate::policy::batch_policy::{BatchPolicy, Fixed};

/// Makes the policy.
pub fn chosen(choice: PolicyChoice) -> Box<dyn BatchPolicy> {
    match choice {
        PolicyChoice::Auto => Box::new(Auto::default()),
        PolicyChoice::Eager => Box::new(Fixed::EAGER),
        PolicyChoice::Fixed(delay) => Box::new(Fixed { delay }),
    }
}
