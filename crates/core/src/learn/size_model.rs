//! What a batch of n takes, learned from what batches took. Decisions, predictions and `Retry-After` rest on this alone.

use std::time::Duration;

/// Batches that must have been measured before anything is believed.
pub const BELIEVED_AFTER: u64 = 3;
/// Batches of a size, the older ones faded, after which their own mean counts more than the line through all sizes.
const SIZE_BELIEVED_AFTER: f64 = 2.5;
/// Weight of a size's past: its mean follows a change within about this many batches.
const MEMORY: f64 = 20.0;
/// What a size counts fades to a third over as many batches of other sizes: what is not seen any more, or was only ever said
/// to be of that size, must not bend the line without end. A size that none of so many batches had counts as one batch: what
/// it took while another process had the core says little about the present.
const FADES_OVER: u64 = 64;
/// Batches that count as recent.
const LATELY: u64 = 16;
/// Once five batches are known, one duration counts as at most this many times what was expected.
const OUTLIER: f64 = 3.0;
/// Weight of the newest batch in how far durations scatter.
const SCATTER_WEIGHT: f64 = 0.05;
/// So many batches in a row, of sizes that are believed, all off by this factor the same way, and by this much of what they
/// scatter (both as logarithms): the model has changed at once. What was learned before is scaled, and gives way.
const SURPRISES: usize = 3;
const SURPRISE: f64 = 0.75;
const SURPRISE_OVER_SCATTER: f64 = 2.0;
/// Lengths are compared as if each were longer by this, in seconds: a front that is busy notices the end of a batch a little
/// too late, and twice or half of next to nothing does not describe the model.
const NOISE_S: f64 = 2e-4;
/// No batch takes less, in seconds: less than the way to a worker and back is noise, and a model that costs nothing must not
/// divide by it.
const LEAST_S: f64 = 2e-5;
/// Or more: whatever is computed from it stays a length of time.
const MOST_S: f64 = 86_400.0;

/// What was measured of batches of about one size.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Size {
    /// How much it counts; 0: never seen.
    pub weight: f64,
    /// Their mean size.
    pub items: f64,
    /// What they took, on average, or would take now that the model has changed.
    pub seconds: f64,
    /// The number of the last one.
    seen: u64,
}

/// A batch that was far off.
#[derive(Clone, Copy, Debug)]
struct Surprise {
    number: u64,
    place: usize,
    seconds: f64,
    /// The logarithm of how far.
    off: f64,
    is_believed: bool,
}

/// Measured batch durations by size: a mean per size, and a line a + b·n through the means.
#[derive(Clone, Debug)]
pub struct SizeModel {
    sizes: Vec<Size>,
    launch_s: f64,
    item_s: f64,
    recent_s: f64,
    recent_items: f64,
    scatter: f64,
    count: u64,
    has_line: bool,
    /// Batches in a row that were far off.
    surprises: Vec<Surprise>,
    /// The number of the batch with which the model was last seen to have changed.
    changed: u64,
}

impl Default for SizeModel {
    fn default() -> SizeModel {
        SizeModel {
            sizes: Vec::new(),
            launch_s: 0.0,
            item_s: 0.0,
            recent_s: 0.0,
            recent_items: 0.0,
            scatter: 0.1,
            count: 0,
            has_line: false,
            surprises: Vec::new(),
            changed: 0,
        }
    }
}

impl SizeModel {
    /// Learns that a batch of `items` occupied a replica for `length`.
    pub fn learn(&mut self, items: usize, length: Duration) {
        if items == 0 {
            return;
        }
        self.count += 1;
        let mut seconds = length.as_secs_f64().clamp(LEAST_S, MOST_S);
        let expected = self.seconds(items);
        let place = index(items as f64);
        self.compare(place, seconds, expected);
        if self.count > 5 {
            seconds = seconds.min(OUTLIER * expected);
        }
        if self.sizes.len() <= place {
            self.sizes.resize(place + 1, Size::default());
        }
        if self.has_line {
            let off = ((seconds / expected).min(OUTLIER) - 1.0).abs();
            self.scatter += SCATTER_WEIGHT * ((1.25 * off).min(1.0) - self.scatter);
        }
        for size in &mut self.sizes {
            let most = if self.count - size.seen > FADES_OVER { 1.0 } else { MEMORY };
            size.weight = (size.weight * (1.0 - 1.0 / FADES_OVER as f64)).min(most);
        }
        let size = &mut self.sizes[place];
        if size.weight > 0.5 && size.weight < 1.5 && seconds < size.seconds / 2.0 {
            size.seconds = seconds; // the first batch of this size paid for a warm-up
        }
        size.weight = (size.weight + 1.0).min(MEMORY);
        size.items += (items as f64 - size.items) / size.weight;
        size.seconds += (seconds - size.seconds) / size.weight;
        size.seen = self.count;
        if self.surprises.iter().filter(|one| one.is_believed).count() == SURPRISES {
            self.change();
        }
        let lately = self.count.min(LATELY) as f64;
        self.recent_s += (seconds - self.recent_s) / lately;
        self.recent_items += (items as f64 - self.recent_items) / lately;
        self.fit_line();
    }

    /// What this model has learned as a first guess for a similar model: measurements replace it.
    #[must_use]
    pub fn as_a_guess(&self) -> SizeModel {
        let mut guess = self.clone();
        guess.sizes.iter_mut().for_each(|size| size.weight = size.weight.min(SIZE_BELIEVED_AFTER));
        guess
    }

    /// Notes a batch that is far off, and forgets those before it if it is not, or the other way.
    fn compare(&mut self, place: usize, seconds: f64, expected: f64) {
        let off = ((seconds + NOISE_S) / (expected + NOISE_S)).ln();
        let is_far = off.abs() > SURPRISE.max(SURPRISE_OVER_SCATTER * self.scatter);
        // Its first batches may pay for a warm-up: they prove nothing, but are not older than those of sizes that do.
        let is_believed = self.sizes.get(place).is_some_and(|size| size.weight >= SIZE_BELIEVED_AFTER);
        let turns = self.surprises.first().is_some_and(|first| first.off.signum() != off.signum());
        // That a size agrees with what it took a moment ago, when it was new, does not describe the others.
        let is_new = self.surprises.iter().any(|one| one.place == place && !one.is_believed);
        let is_long_ago = self.surprises.first().is_some_and(|first| self.count - first.number > LATELY);
        if turns || is_long_ago || is_believed && !is_far && !is_new {
            self.surprises.clear();
        }
        if is_far {
            self.surprises.push(Surprise { number: self.count, place, seconds, off, is_believed });
        }
    }

    /// The model has changed: sizes that were last measured before the first surprise are scaled by as much as all surprises
    /// agree on, the sizes of the surprises are as measured, and what is measured next counts more than all of it. What has been
    /// scaled before and was not seen since is forgotten: scaled again and again by what may have been noise, it would end up
    /// anywhere.
    fn change(&mut self) {
        let surprises = std::mem::take(&mut self.surprises);
        let sure = surprises.iter().filter(|one| one.is_believed).map(|one| one.off);
        let agreed = sure.min_by(|a, b| a.abs().total_cmp(&b.abs())).expect("some of them are");
        let (factor, was, began) = (agreed.exp(), self.changed, surprises[0].number);
        for (place, size) in self.sizes.iter_mut().enumerate() {
            let own = || surprises.iter().filter(|one| one.place == place).map(|one| one.seconds);
            if own().next().is_some() {
                size.seconds = own().sum::<f64>() / own().count() as f64;
            } else if was > 0 && size.seen <= was {
                *size = Size::default();
            } else if size.seen < began {
                size.seconds *= factor;
            }
            size.weight = size.weight.min(SIZE_BELIEVED_AFTER);
        }
        self.changed = self.count;
    }

    /// The weighted line. With one size seen the slope is unknown; half of the time is then taken as launch cost.
    fn fit_line(&mut self) {
        let seen = || self.sizes.iter().filter(|size| size.weight > 0.0);
        let weight: f64 = seen().map(|s| s.weight).sum();
        let items = seen().map(|s| s.weight * s.items).sum::<f64>() / weight;
        let seconds = seen().map(|s| s.weight * s.seconds).sum::<f64>() / weight;
        let spread: f64 = seen().map(|s| s.weight * (s.items - items).powi(2)).sum();
        let slope = seen().map(|s| s.weight * (s.items - items) * (s.seconds - seconds)).sum::<f64>() / spread;
        self.has_line = seen().count() > 1 && spread > 0.0;
        self.item_s = if self.has_line { slope.clamp(0.0, seconds / items) } else { seconds / items / 2.0 };
        self.launch_s = (seconds - self.item_s * items).max(0.0);
    }

    /// Whether enough has been measured to predict.
    pub fn is_known(&self) -> bool {
        self.count >= BELIEVED_AFTER
    }

    /// Whether batches of different sizes have been seen, so that the line is more than a guess.
    pub fn has_line(&self) -> bool {
        self.has_line
    }

    /// Batches measured.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// What a launch costs, whatever the batch contains, in seconds: a.
    pub fn launch_s(&self) -> f64 {
        self.launch_s
    }

    /// What an item adds, in seconds: b.
    pub fn item_s(&self) -> f64 {
        self.item_s
    }

    /// How far durations scatter about what was expected, as a share of it.
    pub fn scatter(&self) -> f64 {
        self.scatter
    }

    /// The sizes seen, smallest first.
    pub fn sizes(&self) -> impl Iterator<Item = &Size> + '_ {
        self.sizes.iter().filter(|size| size.weight > 0.0)
    }

    /// What a batch of `items` takes at least. With one size seen larger ones are taken to cost the same: admission
    /// then lets too much in for one batch, which is better than refusing the first burst of every quiet server.
    pub fn batch(&self, items: usize) -> Duration {
        let seen = self.sizes().next().filter(|_| !self.has_line);
        let seconds = seen.map_or_else(|| self.seconds(items.max(1)), |size| size.seconds);
        Duration::from_secs_f64(seconds.min(MOST_S))
    }

    /// What recent batches took, of whatever size they were.
    pub fn recent(&self) -> Duration {
        Duration::from_secs_f64(self.recent_s)
    }

    /// What a batch of `items` takes at most, if items leave at the recent rate: under load that is what full batches
    /// take, whatever was concluded from the sizes that were seen.
    pub fn at_the_rate_of_lately(&self, items: usize) -> Duration {
        let seconds = self.recent_s * (items as f64 / self.recent_items).max(1.0);
        Duration::from_secs_f64(seconds.min(MOST_S))
    }

    /// S(n): what a batch of `items` takes, in seconds.
    pub fn seconds(&self, items: usize) -> f64 {
        let seconds = match self.sizes.get(index(items as f64)) {
            Some(size) if size.weight >= SIZE_BELIEVED_AFTER => {
                size.seconds + self.item_s * (items as f64 - size.items)
            }
            _ => self.launch_s + self.item_s * items as f64,
        };
        seconds.clamp(LEAST_S, MOST_S)
    }

    /// Whether batches of this size were measured often enough for their own mean to count.
    pub fn has_seen(&self, items: usize) -> bool {
        self.sizes.get(index(items as f64)).is_some_and(|size| size.weight >= SIZE_BELIEVED_AFTER)
    }

    /// The largest size up to `most` that ends within `seconds`; 0 if one item takes longer.
    pub fn within(&self, seconds: f64, most: usize) -> usize {
        let (mut low, mut high) = (0, most);
        while low < high {
            let middle = (low + high).div_ceil(2);
            if self.seconds(middle) <= seconds {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        low
    }

    /// What it takes if it takes long, in seconds.
    pub fn upper(&self, items: usize) -> f64 {
        self.seconds(items) * (1.0 + self.scatter / 2.0)
    }

    /// Items per second of one replica at its best size.
    pub fn best_rate(&self, max_items: usize) -> f64 {
        let full = max_items as f64 / self.seconds(max_items);
        let believed = self.sizes.iter().filter(|size| size.weight >= SIZE_BELIEVED_AFTER);
        believed.map(|size| size.items / size.seconds.max(LEAST_S)).fold(full, f64::max)
    }

    /// The largest size up to `most`, at least 1, that ends within `slack` seconds. While only one size is known, sizes
    /// grow step by step: at most twice the largest that was seen.
    pub fn fit(&self, slack: f64, most: usize) -> usize {
        if !self.has_line {
            return if self.sizes.is_empty() { most } else { most.min(2 * top(self.sizes.len() - 1)) };
        }
        if self.upper(most) <= slack {
            return most;
        }
        let (mut low, mut high) = (1, most);
        while low < high {
            let middle = (low + high).div_ceil(2);
            if self.upper(middle) <= slack {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        low
    }

    /// The size up to `most` for which `cost` of (items, seconds) is least: `most`, or a size up to which seconds are known.
    /// A smaller size must be better by the share `doubt`.
    pub fn best_size(&self, most: usize, doubt: f64, cost: impl Fn(usize, f64) -> f64) -> usize {
        let tops = (0..index(most as f64)).map(top).filter(|&top| top < most);
        let weight = |items| if items == most { 1.0 - doubt } else { 1.0 };
        let all = std::iter::once(most).chain(tops);
        let costs = all.map(|items| (weight(items) * cost(items, self.seconds(items)), items));
        costs.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(most, |(_, items)| items)
    }
}

/// Sizes end at 1, 2, 4, 5, 8, 11, 16, 22, 32, …: none straddles a power of two, where padded models jump.
fn index(items: f64) -> usize {
    (2.0 * items.log2() - 1e-9).ceil().max(0.0) as usize
}

fn top(index: usize) -> usize {
    ((index as f64 / 2.0).exp2() + 1e-9) as usize
}

#[cfg(test)]
mod tests;
