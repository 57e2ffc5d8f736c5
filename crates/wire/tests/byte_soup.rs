//! Hostile bytes, seeded: whatever arrives, the decoder neither panics nor hoards nor loses count.
//!
//! The same property is fuzzed in `fuzz/`; this test needs no special tool.

mod property;

use rand::{Rng, SeedableRng, rngs::StdRng};

use property::{replies_of, steps_of};

/// Pieces that make deep states likely: pure noise rarely gets past the first word.
const CRUMBS: &[&[u8]] = &[
    b"put ",
    b"put 0 0 1 ",
    b"put 1 2 3 7\r\n",
    b"put 0 0 1 99999\r\n",
    b"put 0 0 0 4294967295\r\n",
    b"use ",
    b"watch ",
    b"pause-tube",
    b"reserve",
    b"reserve-with-timeout ",
    b"kick ",
    b"kick-job ",
    b"release ",
    b"stats",
    b"-tube ",
    b"-job ",
    b"list-tubes",
    b"peek",
    b"-ready",
    b"quit",
    b"0",
    b"1",
    b"18446744073709551616",
    b"4294967295",
    b"-",
    b"+",
    b" ",
    b"  ",
    b"\r",
    b"\n",
    b"\r\n",
    b"\r\n",
    b"\r\n",
    b"\r\r\n",
    b"\0",
    b"\xff\xfe",
    b"\t",
    b"INSERTED ",
    b"RESERVED 1 ",
    b"OK ",
    b"FOUND ",
    b"USING ",
];

fn soup(random: &mut StdRng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..random.random_range(0..60) {
        match random.random_range(0..10) {
            0 => bytes.push(random.random()),
            1 => {
                let byte = *CRUMBS[random.random_range(0..CRUMBS.len())]
                    .first()
                    .unwrap_or(&0);
                bytes.resize(bytes.len() + random.random_range(0..500), byte);
            }
            _ => bytes.extend_from_slice(CRUMBS[random.random_range(0..CRUMBS.len())]),
        }
    }
    bytes
}

#[test]
fn byte_soup_is_digested() {
    let seed = std::env::var("TRELLIS_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let (first, rounds) = seed.map_or((1, 3_000), |seed: u64| (seed, 1));
    for seed in first..first + rounds {
        let replay = format!(
            "seed {seed}; replay: TRELLIS_SEED={seed} sh tests/cargo.sh test -p trellis-wire --test byte_soup"
        );
        let mut random = StdRng::seed_from_u64(seed);
        let bytes = soup(&mut random);
        let pieces: Vec<usize> = (0..8).map(|_| random.random_range(1..64)).collect();
        let body_bytes_max = [0, 10, 1_000, 65_535][random.random_range(0..4)];
        let outcome = std::panic::catch_unwind(|| {
            assert_eq!(
                steps_of(&bytes, &pieces, body_bytes_max),
                steps_of(&bytes, &[], body_bytes_max),
                "cut and whole differ"
            );
            assert_eq!(replies_of(&bytes, &pieces), replies_of(&bytes, &[]));
        });
        assert!(
            outcome.is_ok(),
            "{replay}; bytes \"{}\"",
            bytes.escape_ascii()
        );
    }
}
