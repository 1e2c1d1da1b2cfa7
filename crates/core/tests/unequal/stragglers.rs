//! One replica of many becomes ten times slower and recovers.

use crate::world::{Kind, Scene, Story, kind, run};

const SEEDS: [u64; 2] = [211, 212];
/// How long it is slow, after as long a time as before.
const SLOW_S: f64 = 12.0;
const TIMES: f64 = 10.0;
/// The number of the one.
const ONE: u32 = 3;

fn story(replicas: usize, load: f64, seed: u64, equal: bool) -> Story {
    let mut all = vec![kind(1.0); replicas];
    all[ONE as usize] = Kind { slow: (SLOW_S, 2.0 * SLOW_S, TIMES), ..kind(1.0) };
    let scene = Scene { equal, ..Scene::new(all, load, 0) };
    run(&Scene { items: (scene.rate * 3.0 * SLOW_S) as usize, ..scene }, seed)
}

/// Between two of its batches, counted from a time: when the one with this number was sent.
fn batch_at(story: &Story, from: f64, number: usize) -> Option<f64> {
    story.batches.iter().filter(|&&(at, replica, _)| at >= from && replica == ONE).nth(number).map(|&(at, ..)| at)
}

#[test]
fn a_straggler_is_given_little_and_named_and_is_back_when_it_recovers() {
    let mut failed = Vec::new();
    for (replicas, load) in [(8, 0.3), (8, 0.6), (8, 0.75), (100, 0.6)] {
        // A hundred replicas answer a million items meanwhile.
        let is_long = std::env::var_os("JITNEY_TEST_LONG").is_some();
        let seeds = if replicas > 8 && !is_long { &SEEDS[..1] } else { &SEEDS };
        for &seed in seeds {
            let story = story(replicas, load, seed, false);
            let fair = 1.0 / replicas as f64;
            let before = story.latencies(SLOW_S / 2.0, SLOW_S);
            let slow = story.latencies(SLOW_S, 2.0 * SLOW_S);
            let known = batch_at(&story, SLOW_S, 20).unwrap_or(1.5 * SLOW_S).min(1.5 * SLOW_S);
            let share = story.share(ONE, known, 2.0 * SLOW_S) / fair;
            // A hundred batches of a replica that gets its fair share.
            let sent = story.batches.iter().filter(|(at, ..)| *at >= 2.0 * SLOW_S);
            let hundred = sent.map(|(at, ..)| *at).nth(100 * replicas);
            let back = hundred.map(|from| story.share(ONE, from, story.ended) / fair);
            let named = story.named.iter().filter(|(_, replica)| *replica == ONE).count();
            eprintln!(
                "{replicas} replicas, load {load}: p99 {:.0} then {:.0} ms ({:.2}), share {share:.3}, back {back:?}, named {:?}",
                before[2] * 1e3,
                slow[2] * 1e3,
                slow[2] / before[2],
                story.named
            );
            let name = format!("{replicas} replicas, load {load}, seed {seed}");
            let mut check = |holds: bool, what: &str| {
                if !holds {
                    failed.push(format!("{name}: {what}"));
                }
            };
            check(slow[2] <= 1.5 * before[2], "p99");
            check(share <= 0.1, "share");
            check(back.is_some_and(|share| share > 0.8), "back");
            check(story.named.len() == named, "another one was named");
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}
