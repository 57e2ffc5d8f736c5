//! Generates messages and services from `proto/` without a `protoc` on the machine.

use std::{env, error::Error, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    // Asked at run time: checkouts that share a target folder share this program too.
    let protos = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    let files = [
        "trellis/queue.proto",
        "trellis/raft.proto",
        "trellis/peer.proto",
    ];
    for file in files {
        println!("cargo:rerun-if-changed={}", protos.join(file).display());
    }
    println!("cargo:rerun-if-changed=build.rs");

    let descriptors = protox::compile(files, [&protos])?;
    tonic_prost_build::configure()
        // Payloads are sliced out of the received frame instead of being copied.
        .bytes(".")
        .emit_rerun_if_changed(false)
        .compile_fds(descriptors)?;
    Ok(())
}
