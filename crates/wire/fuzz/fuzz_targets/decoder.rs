//! Any bytes from a client, in any pieces: no panic, no hoarding, every byte accounted for, and
//! the pieces make no difference.

#![no_main]

#[path = "../../tests/property/mod.rs"]
mod property;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Vec<u8>, Vec<u8>, u16)| {
    let (bytes, pieces, body_bytes_max) = input;
    let pieces: Vec<usize> = pieces.into_iter().map(usize::from).collect();
    let cut = property::steps_of(&bytes, &pieces, body_bytes_max.into());
    let whole = property::steps_of(&bytes, &[], body_bytes_max.into());
    assert_eq!(cut, whole);
});
