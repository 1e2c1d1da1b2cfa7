//! `auto` against `eager` and against a grid of cells tuned manually, in virtual time. The scheduler is the one of production.
//! Everything is seeded: the same figures every time. Run one with `--nocapture` to see its table.

mod arrivals;
mod batches;
mod cells;
mod changes;
mod drawn;
mod figures;
mod histories;
mod invariants;
mod lanes;
mod overload;
mod padding;
mod random;
mod scenarios;
mod simulator;
mod stories;
mod targets;
mod ticks;
mod worth;
