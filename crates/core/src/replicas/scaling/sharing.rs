//! Which deployment gets the next free place when several lack replicas.

/// The replicas of one deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Replicas that it has, starting ones included.
    pub has: u32,
    /// Replicas that it must have at least.
    pub fewest: u32,
    /// Replicas that it should have.
    pub wanted: u32,
}

impl Share {
    fn lack(&self) -> u32 {
        self.wanted.saturating_sub(self.has)
    }
}

/// The deployment that gets the next place: one that has fewer replicas than it must have, else the one that lacks most. The
/// first one of equal ones; `None` if none lacks any.
pub fn next(shares: &[Share]) -> Option<usize> {
    let lacking = shares.iter().enumerate().rev().filter(|(_, share)| share.lack() > 0);
    lacking.max_by_key(|(_, share)| (share.has < share.fewest, share.lack())).map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Gives the free places of a pool away; returns to whom each went.
    fn fill(pool: u32, shares: &mut [Share]) -> Vec<usize> {
        let mut given = Vec::new();
        let taken = |shares: &[Share]| shares.iter().map(|share| share.has).sum::<u32>();
        while taken(shares) < pool
            && let Some(index) = next(shares)
        {
            shares[index].has += 1;
            given.push(index);
        }
        given
    }

    #[test]
    fn the_fewest_come_first_and_then_the_largest_lack() {
        let share = |has, fewest, wanted| Share { has, fewest, wanted };
        assert_eq!(next(&[share(5, 1, 50), share(0, 1, 1)]), Some(1));
        assert_eq!(next(&[share(5, 1, 9), share(5, 1, 12)]), Some(1));
        assert_eq!(next(&[share(5, 1, 9), share(4, 1, 8)]), Some(0));
        assert_eq!(next(&[share(5, 1, 5), share(9, 1, 8)]), None);
    }

    proptest! {
        /// Ten deployments of up to 100 replicas on 600 places: their loads change, and machines go away.
        #[test]
        fn none_of_ten_deployments_starves_on_a_pool_of_600_places(
            loads in prop::collection::vec((prop::collection::vec(0_u32..=100, 10), prop::bool::weighted(0.2)), 1..30),
            fewest in prop::collection::vec(1_u32..=30, 10),
        ) {
            const POOL: u32 = 600;
            let mut shares: Vec<Share> =
                fewest.iter().map(|&fewest| Share { has: 0, fewest, wanted: fewest }).collect();
            for (wanted, loses_machine) in loads {
                for (share, wanted) in shares.iter_mut().zip(wanted) {
                    share.wanted = wanted.max(share.fewest);
                    share.has = share.has.min(share.wanted);
                    // A tenth of the machines, and of the replicas of each deployment.
                    share.has -= if loses_machine { share.has / 10 } else { 0 };
                }
                let given = fill(POOL, &mut shares);
                let is_full = shares.iter().map(|share| share.has).sum::<u32>() == POOL;
                prop_assert!(shares.iter().all(|share| share.has >= share.fewest), "{shares:?}");
                prop_assert!(is_full || shares.iter().all(|share| share.lack() == 0), "{shares:?}");
                let most = shares.iter().map(Share::lack).max().unwrap_or(0);
                for &index in &given {
                    let Share { has, fewest, .. } = shares[index];
                    prop_assert!(has <= fewest || shares[index].lack() + 1 >= most, "{index}: {shares:?}");
                }
            }
        }
    }
}
