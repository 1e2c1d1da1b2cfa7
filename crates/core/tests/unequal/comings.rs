//! Replicas that come, go silent, come back and leave.

use crate::world::{Kind, SILENCE, Scene, kind, run, seconds};

const SEEDS: [u64; 2] = [231, 232];

#[test]
fn a_machine_that_goes_silent_costs_no_item_and_no_innocent() {
    let (count, gone, at) =
        if std::env::var_os("JITNEY_TEST_LONG").is_some() { (1000, 100, 4.0) } else { (200, 20, 4.0) };
    for seed in SEEDS {
        let mut replicas = vec![kind(1.0); count];
        for (number, replica) in replicas[..gone].iter_mut().enumerate() {
            let back = if number % 2 == 0 { at + 2.0 * SILENCE } else { f64::INFINITY };
            *replica = Kind { silent: at, back, ..kind(1.0) };
        }
        let scene = Scene::new(replicas, 0.6, 0);
        let story = run(&Scene { items: (scene.rate * 24.0) as usize, ..scene.clone() }, seed);
        assert_eq!((story.twice, story.failed, story.suspects), (0, 0, 0));
        assert!(story.named.is_empty(), "none was slow: {:?}", story.named);
        let last = story.again.iter().copied().fold(0.0, f64::max);
        let full = seconds(crate::world::MAX_BATCH);
        eprintln!(
            "{} items were sent again, the last one {:.3} s after the silence began",
            story.again.len(),
            last - at
        );
        assert!(!story.again.is_empty() && last <= at + SILENCE + 2.0 * full, "{last}");
        let during = story.answered.iter().filter(|one| (at..at + SILENCE).contains(&one.at)).count();
        let goodput = during as f64 / (scene.rate * SILENCE);
        eprintln!("goodput {goodput:.3} of what was asked");
        assert!(goodput >= 0.88, "{goodput}");
        let back = story
            .batches
            .iter()
            .filter(|(at_, replica, _)| *at_ > at + 2.0 * SILENCE && (*replica as usize) < gone)
            .count();
        assert!(back > 0, "those that came back work");
    }
}

/// 4 replicas, and so many more that join within 100 ms after a second, and leave within 100 ms after three.
fn coming_and_leaving(count: u32) -> Vec<Kind> {
    let within = |number: u32| 0.1 * f64::from(number) / f64::from(count);
    let mut replicas = vec![kind(1.0); 4];
    replicas.extend((0..count).map(|n| Kind { up: 1.0 + within(n), leaves: 3.0 + within(n), ..kind(1.0) }));
    replicas
}

#[test]
fn replicas_that_join_and_leave_within_a_moment_cost_as_much_each_as_few_do() {
    let steps = |count: u32| {
        let scene = Scene { rate: 2000.0, ..Scene::new(coming_and_leaving(count), 0.5, 10_000) };
        let story = run(&scene, 233);
        assert_eq!((story.twice, story.failed, story.suspects), (0, 0, 0));
        story.polls as f64
    };
    let (few, many) = (steps(10), steps(1000));
    eprintln!("{few} steps with 10 more replicas, {many} with 1000");
    assert!(many <= few + 2.0 * 4.0 * 1000.0 + 10_000.0, "each coming and each leaving is a few steps: {few} {many}");
}

#[test]
fn admission_opens_and_closes_once_where_replicas_join_and_leave_within_a_moment() {
    // Eight times what 4 replicas can answer, and a thirtieth of what 1,004 can.
    let scene = Scene { rate: 20_000.0, has_door: true, ..Scene::new(coming_and_leaving(1000), 0.5, 100_000) };
    let story = run(&scene, 239);
    assert_eq!((story.twice, story.failed, story.suspects), (0, 0, 0));
    let slot = |at: f64| (at / 0.02) as usize;
    let mut is_closed = vec![false; slot(story.ended.min(4.9))];
    for &at in &story.refused {
        if let Some(closed) = is_closed.get_mut(slot(at)) {
            *closed = true;
        }
    }
    let changes: Vec<usize> = (1..is_closed.len()).filter(|&n| is_closed[n] != is_closed[n - 1]).collect();
    eprintln!(
        "{} refused; it closes, opens and closes at {:?} s",
        story.refused.len(),
        changes.iter().map(|&n| n as f64 * 0.02).collect::<Vec<_>>()
    );
    assert!(is_closed.last().is_some_and(|&closed| closed), "it is closed at the end");
    assert_eq!(changes.len(), 3, "{changes:?}");
}
