//! The rules of `jitney-core` as properties: random schedules against a naive reference, and simulations.

mod admission;
mod asked;
mod bulk;
mod hedging;
mod lifecycle;
mod ops;
mod poison;
mod schedules;
mod similar_length;
mod simulation;
mod supervisor;
mod world;

/// Enough cases for every change; `PROPTEST_CASES` asks for another number, as a long run does.
fn cases(enough: u32) -> proptest::test_runner::Config {
    let config = proptest::test_runner::Config::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { config.cases } else { enough };
    proptest::test_runner::Config { cases, ..config }
}
