//! Accounts of memory that clients make the server hold.

use prometheus::IntGauge;

/// Counts bytes in a gauge while it lives; gives them back however that ends.
#[derive(Debug)]
pub(crate) struct Held {
    gauge: IntGauge,
    bytes: i64,
}

impl Held {
    /// An empty account.
    pub(crate) fn new(gauge: IntGauge) -> Held {
        Held { gauge, bytes: 0 }
    }

    /// Adds to the account; false if the whole server then held more than it may.
    pub(crate) fn grow(&mut self, bytes: usize, most: u64) -> bool {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.gauge.add(bytes);
        self.bytes += bytes;
        u64::try_from(self.gauge.get()).unwrap_or(0) <= most
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.gauge.sub(self.bytes);
    }
}
