//! Many deployments on one pool of places: each follows its load, and none starves.

use crate::rules::Ours;
use crate::scenarios::{Shape, scenario};
use crate::world::{Scenario, Service, World};
use jitney_core::replicas::scaling::sharing::{self, Share};

const PLACES: u32 = 600;
/// Most replicas of one deployment.
const MOST: u32 = 100;

/// Ten deployments, of up to 100 replicas each. A replica answers two items in three seconds.
fn deployments() -> Vec<Scenario> {
    let service = Service { a: 2.0, b: 1.0, most: 4, cv: 0.1, drift: (f64::INFINITY, 1.0) };
    let of = |n: u32| {
        let load = f64::from(50 + 4 * n);
        let shape = match n % 5 {
            0 => Shape::Steady(load),
            1 => Shape::Spike(load / 4.0, 4.0, 300.0),
            2 => Shape::Daily(load / 5.0, load, 600.0),
            3 => Shape::OnOff(load, 300.0),
            _ => Shape::Bursts(load / 5.0, load, 60.0),
        };
        let one = scenario("pool", service, shape, 1800.0, 20.0, 6200 + u64::from(n));
        let min = 1 + 3 * n;
        Scenario { min, max: MOST, begins_with: min, ..one }
    };
    (0..10).map(of).collect()
}

#[test]
fn none_of_ten_deployments_starves_on_a_pool_of_600_places() {
    let all = deployments();
    let mut worlds: Vec<(World, Ours)> = all.iter().map(|one| (World::new(one), Ours::new(one))).collect();
    let (mut full, mut most_wanted) = (0, 0);
    for second in 0..1800 {
        // Each comes to its tick of this second.
        for (world, _) in &mut worlds {
            while !world.advance(world.next()) {
                world.launch();
            }
        }
        let mut shares: Vec<Share> = Vec::new();
        for ((world, rule), one) in worlds.iter_mut().zip(&all) {
            let wanted = world.wanted(rule);
            shares.push(Share { has: world.staying().min(wanted), fewest: one.min, wanted });
        }
        let used: u32 = worlds.iter().map(|(world, _)| world.has()).sum();
        assert!(used <= PLACES, "{used} places are used in second {second}");
        let mut free = PLACES - used;
        while free > 0
            && let Some(next) = sharing::next(&shares)
        {
            let lack = |share: &Share| share.wanted.saturating_sub(share.has);
            let most = shares.iter().map(lack).max().unwrap_or(0);
            assert!(lack(&shares[next]) == most || shares[next].has < shares[next].fewest, "{next} of {shares:?}");
            shares[next].has += 1;
            free -= 1;
        }
        let wanted: u32 = shares.iter().map(|share| share.wanted).sum();
        (full, most_wanted) = (full + u32::from(wanted > PLACES), most_wanted.max(wanted));
        for ((world, _), share) in worlds.iter_mut().zip(&shares) {
            assert!(share.wanted <= MOST && share.has >= share.fewest, "second {second}: {share:?}");
            world.allot(share.has);
            world.launch();
        }
    }
    let late: Vec<f64> = worlds.into_iter().map(|(world, _)| world.end().late_share()).collect();
    println!("too few places in {full} of 1,800 s, at most {most_wanted} wanted; late: {late:.3?}");
    assert!(full > 100, "the pool must be too small at times: {full}");
}
