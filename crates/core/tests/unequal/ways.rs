//! Replicas on other machines: half of them are near, half are far, or all are far.

use crate::world::{Kind, MAX_BATCH, Scene, kind, run, seconds};

const SEEDS: [u64; 2] = [221, 222];

fn far(round_trip: f64) -> Kind {
    Kind { way: round_trip / 2.0, ..kind(1.0) }
}

#[test]
fn far_replicas_are_kept_busy_and_near_ones_are_preferred() {
    let mut failed = Vec::new();
    for ms in [0.0, 0.5, 20.0, 200.0] {
        let one_way = ms / 2e3;
        let fleet = |half: usize| [vec![kind(1.0); half], vec![far(ms / 1e3); half]].concat();
        let mut means = vec![[0.0; 2]; 3];
        for seed in SEEDS {
            // More than they can do: what counts is how much they do.
            let ceiling = 8.0 * MAX_BATCH as f64 / seconds(MAX_BATCH);
            let done = |replicas: Vec<Kind>| {
                let story = run(&Scene::new(replicas, 1.3, 40_000), seed);
                let last = story.answered.iter().filter(|one| (2.0..6.0).contains(&one.at)).count();
                last as f64 / 4.0 / ceiling
            };
            let (mixed, all_far) = (done(fleet(4)), done(vec![far(ms / 1e3); 8]));
            let mut line = format!("{ms} ms, saturated: {mixed:.3} of the ceiling, all far {all_far:.3}");
            if ms <= 20.0 && mixed.min(all_far) < 0.97 {
                failed.push(format!("{ms} ms, seed {seed}: {mixed:.3} {all_far:.3}"));
            }
            // With 200 ms two batches in flight keep a far replica busy for less than half of the time: 0.8 is more than they can do.
            let loads = [0.2, 0.5, 0.8].into_iter().filter(|&load| ms < 200.0 || load <= 0.5);
            for (load, sum) in loads.zip(&mut means) {
                let mean = |replicas: Vec<Kind>| run(&Scene::new(replicas, load, 20_000), seed).figures()[0];
                let (mixed, near) = (mean(fleet(4)), mean(vec![kind(1.0); 8]));
                line = format!("{line}, load {load}: {:.1} ms, near {:.1}", mixed * 1e3, near * 1e3);
                *sum = [sum[0] + mixed / SEEDS.len() as f64, sum[1] + near / SEEDS.len() as f64];
            }
            eprintln!("{line}");
        }
        // The arrivals are the same and batches differ: a hundredth is chance.
        for [mixed, near] in means {
            if mixed > 1.01 * near + one_way {
                failed.push(format!("{ms} ms: {mixed:.4}, near {near:.4}"));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}
