use super::*;

fn ms(n: f64) -> Duration {
    Duration::from_secs_f64(n / 1e3)
}

fn linear(sizes: &[usize]) -> SizeModel {
    let mut size_model = SizeModel::default();
    sizes.iter().for_each(|&items| size_model.learn(items, ms(5.0 + 0.1 * items as f64)));
    size_model
}

#[test]
fn it_finds_the_line_of_a_linear_model() {
    let size_model = linear(&[1, 8, 64, 1, 8, 64]);
    assert!(size_model.is_known());
    assert!((size_model.batch(32).as_secs_f64() * 1e3 - 8.2).abs() < 0.1, "{:?}", size_model.batch(32));
    assert!(
        (size_model.launch_s() - 0.005).abs() < 1e-5 && (size_model.item_s() - 0.0001).abs() < 1e-6,
        "{size_model:?}"
    );
}

#[test]
fn with_one_size_seen_the_door_takes_larger_ones_to_cost_the_same_and_a_policy_half_of_it_as_launch_cost() {
    let mut size_model = SizeModel::default();
    (0..3).for_each(|_| size_model.learn(1, ms(5.0)));
    assert_eq!(size_model.batch(64), ms(5.0));
    assert!((size_model.launch_s() - 0.0025).abs() < 1e-9);
    assert_eq!(size_model.fit(1.0, 64), 2, "with a target, sizes grow step by step");
}

#[test]
fn items_leave_at_the_rate_of_lately() {
    let mut size_model = SizeModel::default();
    (0..100).for_each(|_| size_model.learn(4, ms(2.0)));
    assert_eq!([2, 4, 8].map(|items| size_model.at_the_rate_of_lately(items)), [ms(2.0), ms(2.0), ms(4.0)]);
}

#[test]
fn one_outlier_does_not_move_it_far() {
    let mut size_model = SizeModel::default();
    (0..20).for_each(|_| size_model.learn(4, ms(10.0)));
    size_model.learn(4, ms(10_000.0));
    assert!(size_model.batch(4) < ms(12.0));
}

#[test]
fn a_warm_up_of_one_size_does_not_spoil_what_is_known_of_the_others() {
    let mut size_model = linear(&[1, 1, 1, 2]);
    size_model.learn(64, ms(10_000.0));
    assert!(size_model.seconds(1) < 0.01, "{}", size_model.seconds(1));
}

#[test]
fn sizes_that_were_seen_before_a_change_are_scaled_with_it_and_those_seen_since_are_not() {
    let mut size_model = SizeModel::default();
    (0..80).for_each(|n| size_model.learn([1, 8, 16][n % 3], ms(3.0)));
    // 32 was never seen before: a first sight is not a change.
    (0..2).for_each(|_| size_model.learn(32, ms(150.0)));
    [16, 8, 16].iter().for_each(|&items| size_model.learn(items, ms(150.0)));
    let taken_ms = [1, 8, 16, 32].map(|items| size_model.seconds(items) * 1e3);
    assert!(taken_ms.iter().all(|ms| (120.0..190.0).contains(ms)), "{taken_ms:?}");
}

#[test]
fn fit_is_the_largest_size_that_ends_in_time() {
    let size_model = linear(&[1, 8, 64, 1, 8, 64, 1, 8, 64]);
    let size = size_model.fit(0.0084, 64);
    assert!(size_model.upper(size) <= 0.0084 && size_model.upper(size + 1) > 0.0084, "{size}");
    assert_eq!((size_model.fit(0.0, 64), size_model.fit(1.0, 64)), (1, 64));
}

#[test]
fn the_best_size_is_judged_by_its_own_batches() {
    // One item takes 2.4 ms and two take 3.2 ms: the line through all is lower than both.
    let mut size_model = SizeModel::default();
    [(1, 2.4), (2, 3.2), (16, 13.0), (32, 47.0)]
        .repeat(10)
        .iter()
        .for_each(|&(items, taken_ms)| size_model.learn(items, ms(taken_ms)));
    assert!(size_model.launch_s() + size_model.item_s() < 0.002, "{size_model:?}");
    assert_eq!(size_model.best_size(2, 0.0, |items, seconds| seconds * (10.0 / items as f64 + 1.0)), 2);
}

#[test]
fn what_a_size_took_long_ago_is_not_believed() {
    let mut size_model = linear(&[1, 8, 64].repeat(5));
    (0..5).for_each(|_| size_model.learn(2, ms(50.0)));
    assert!(size_model.seconds(2) > 0.02, "{}", size_model.seconds(2));
    (0..100).for_each(|_| [1, 8, 64].iter().for_each(|&items| size_model.learn(items, ms(5.0 + 0.1 * items as f64))));
    assert!(size_model.seconds(2) < 0.006, "{}", size_model.seconds(2));
}

#[test]
fn a_size_that_was_measured_next_to_another_process_is_soon_tried_again() {
    let mut size_model = SizeModel::default();
    [(16, 5.0), (32, 8.0)].repeat(20).iter().for_each(|&(items, taken_ms)| size_model.learn(items, ms(taken_ms)));
    // The other process has half of the core, then none of it. Meanwhile only batches of one are measured.
    [(1, 5.0), (2, 5.2)].repeat(20).iter().for_each(|&(items, taken_ms)| size_model.learn(items, ms(taken_ms)));
    (0..70).for_each(|_| size_model.learn(1, ms(2.4)));
    let best = size_model.best_size(2, 0.0, |items, seconds| seconds * (5.0 / items as f64 + 1.0));
    assert_eq!(best, 2, "{size_model:?}");
}

#[test]
fn a_size_that_was_measured_during_a_change_is_not_scaled() {
    let mut size_model = SizeModel::default();
    [(1, 1.0), (2, 2.0)].repeat(20).iter().for_each(|&(items, taken_ms)| size_model.learn(items, ms(taken_ms)));
    // Four times as slow; only the batch of 16, a size that was never seen, takes what the line expects.
    [(1, 4.0), (16, 17.0), (2, 8.0), (1, 4.0)]
        .iter()
        .for_each(|&(items, taken_ms)| size_model.learn(items, ms(taken_ms)));
    let taken_ms: Vec<f64> = size_model.sizes().map(|size| (size.seconds * 1e3).round()).collect();
    assert_eq!(taken_ms, [4.0, 8.0, 17.0]);
}

#[test]
fn no_size_straddles_a_power_of_two() {
    let tops: Vec<usize> = (0..11).map(top).collect();
    assert_eq!(tops, [1, 1, 2, 2, 4, 5, 8, 11, 16, 22, 32]);
    for items in 1..=1024 {
        let place = index(items as f64);
        assert!(items <= top(place) && (place == 0 || items > top(place - 1)), "{items}: {place}");
    }
}

#[test]
fn scatter_alone_does_not_carry_away_a_size_that_is_not_seen() {
    // Full batches of which every fifth takes three times as long; then some that take from once to twice as long.
    for lengths in [&[1.0; 16][..], &[1.0, 2.0]] {
        let mut size_model = SizeModel::default();
        (0..3).for_each(|_| size_model.learn(1, ms(1.0)));
        for _ in 0..2_000 {
            lengths.iter().for_each(|&length| size_model.learn(32, ms(length)));
            (0..lengths.len() / 4).for_each(|_| size_model.learn(32, ms(3.0)));
        }
        let alone_ms = size_model.seconds(1) * 1e3;
        assert!((0.25..=4.0).contains(&alone_ms), "{alone_ms}");
        assert!(size_model.launch_s() < 4e-3 && size_model.batch(32) < ms(4.0), "{size_model:?}");
    }
}

#[test]
fn what_is_seldom_seen_is_never_far_from_what_was_measured_however_much_the_others_scatter() {
    // A model that costs nothing, behind a front that is busy: most batches take half a millisecond, some none, and
    // now and then several in a row take tens.
    let (mut size_model, mut state) = (SizeModel::default(), 1_u64);
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut longest, mut spell) = (0.0_f64, 0);
    for _ in 0..100_000 {
        spell = if random(50) == 0 { 5 } else { spell - 1_i32 };
        let taken_ms = match random(4) {
            _ if spell > 0 => 10.0 + random(20) as f64,
            0 => 0.0,
            _ => 0.5,
        };
        let items = if random(20) == 0 { 1 + random(64) } else { [1, 11, 45][random(3) as usize] };
        size_model.learn(items as usize, ms(taken_ms));
        longest = (1..=64).map(|items| size_model.seconds(items)).fold(longest, f64::max);
    }
    // One change away, not many: without a bound it reaches a day.
    assert!(longest < 1.0, "{longest} s, and none took more than 0.03");
}
