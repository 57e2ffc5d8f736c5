//! What the floors below the doors cost: time and allocations for each command, without a socket or a cluster.

mod apply;
mod codec;
mod costs;
mod store;

use criterion::{criterion_group, criterion_main};

criterion_group! {
    name = benches;
    config = costs::criterion();
    targets = apply::commands, apply::due, codec::wire, codec::batches, store::log, store::mirror
}
criterion_main!(benches);
