//! Any bytes from a server, in any pieces: no panic, and the pieces make no difference.

#![no_main]

#[path = "../../tests/property/mod.rs"]
mod property;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Vec<u8>, Vec<u8>)| {
    let (bytes, pieces) = input;
    let pieces: Vec<usize> = pieces.into_iter().map(usize::from).collect();
    assert_eq!(
        property::replies_of(&bytes, &pieces),
        property::replies_of(&bytes, &[])
    );
});
