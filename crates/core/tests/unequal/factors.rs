//! Replicas of different speed, against the rule that treats all as equal.

use crate::world::{Scene, kind, run};

/// No rule was tried with these.
const SEEDS: [u64; 3] = [201, 202, 203];

fn fleets() -> Vec<(&'static str, Vec<f64>)> {
    vec![
        ("1 1 1 1", vec![1.0; 4]),
        ("1 1 1 4", vec![1.0, 1.0, 1.0, 4.0]),
        ("1 1 4 4", vec![1.0, 1.0, 4.0, 4.0]),
        ("1 2 4 8", vec![1.0, 2.0, 4.0, 8.0]),
        ("12 x 1, 4 x 3", [vec![1.0; 12], vec![3.0; 4]].concat()),
    ]
}

/// Mean, p95 and p99, averaged over the seeds; ours and those of the rule that knows no factors.
fn compare(factors: &[f64], load: f64, items: usize, seeds: &[u64]) -> [[f64; 3]; 2] {
    [false, true].map(|equal| {
        let scene = Scene { equal, ..Scene::new(factors.iter().map(|&f| kind(f)).collect(), load, items) };
        let runs: Vec<_> = seeds.iter().map(|&seed| run(&scene, seed).figures()).collect();
        [0, 1, 2].map(|of| runs.iter().map(|figures| figures[of]).sum::<f64>() / runs.len() as f64)
    })
}

#[test]
fn equal_replicas_lose_nothing_however_their_durations_scatter() {
    for (count, cv) in [(2, 0.3), (4, 0.5), (16, 0.3), (16, 0.8)] {
        for load in [0.3, 0.8] {
            let scene = Scene { cv, ..Scene::new(vec![kind(1.0); count], load, 20_000) };
            let mean = |equal| {
                let runs = SEEDS.map(|seed| run(&Scene { equal, ..scene.clone() }, seed).figures()[0]);
                runs.iter().sum::<f64>() / SEEDS.len() as f64
            };
            let ratio = mean(false) / mean(true);
            eprintln!(
                "{count} replicas, scatter {cv}, load {load}: mean {ratio:.4} of that of the rule that knows no factors"
            );
            assert!(ratio <= 1.02, "{count} replicas, scatter {cv}, load {load}: {ratio}");
        }
    }
}

#[test]
fn unequal_replicas_answer_sooner_than_if_they_were_taken_for_alike() {
    let mut failed = Vec::new();
    for (name, factors) in fleets() {
        for load in [0.2, 0.5, 0.8, 0.9, 0.95] {
            let [ours, equal] = compare(&factors, load, 20_000, &SEEDS);
            let [mean, p95, p99] = [0, 1, 2].map(|of| ours[of] / equal[of]);
            eprintln!(
                "{name}, load {load}: {:.1} / {:.1} / {:.1} ms equal, ratios {mean:.3} {p95:.3} {p99:.3}",
                equal[0] * 1e3,
                equal[1] * 1e3,
                equal[2] * 1e3
            );
            let is_equal = factors.iter().all(|&factor| factor <= 1.0);
            let most_mean = if load <= 0.8 { 1.02 } else { 1.05 };
            let most_p95 = if is_equal {
                1.02
            } else if (0.4..0.6).contains(&load) {
                0.6
            } else {
                1.05
            };
            if mean > most_mean || p95 > most_p95 {
                failed.push(format!("{name}, load {load}: mean {mean:.3}, p95 {p95:.3}"));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}
