//! As many replicas as there are: what the many have to themselves must not be worse than what the few have.

use crate::world::{Answered, Scene, kind, run};

#[test]
fn many_replicas_serve_as_well_as_few() {
    let is_long = std::env::var_os("JITNEY_TEST_LONG").is_some();
    let loads: &[f64] = if is_long { &[0.5, 0.8, 0.95] } else { &[0.5, 0.8] };
    for &load in loads {
        let mean = |count: usize| {
            let scene = Scene::new(vec![kind(1.0); count], load, 40_000.max(count * if is_long { 1000 } else { 200 }));
            let story = run(&scene, 241);
            let length = scene.items as f64 / scene.rate;
            let within = |one: &&Answered| (0.3 * length..0.9 * length).contains(&one.at);
            let throughput = story.answered.iter().filter(within).count() as f64 / (0.6 * length) / scene.rate;
            assert!(throughput > 0.95, "{count} replicas answered {throughput} of what was asked");
            assert!(story.named.is_empty(), "{:?}", story.named);
            story.figures()[0]
        };
        let means = [1, 10, 100, 1000].map(mean);
        eprintln!("load {load}: {:?} ms", means.map(|mean| (mean * 1e4).round() / 10.0));
        assert!(means[3] <= 1.02 * means[2], "{means:?}");
    }
}
