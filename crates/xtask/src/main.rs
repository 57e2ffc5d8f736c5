//! The build's own tools: `cargo xtask tidy`, `cargo xtask test` and `cargo xtask seeded-bugs`.
//!
//! They are Rust, so that they run wherever the project builds.

mod seeded;
mod suite;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask <command>

  tidy            the house rules: floors, names, banned words, sizes, documents
  test [ARGS]     cargo test over the whole workspace with ARGS, and one closing line that sums it up
  seeded-bugs [--only BUG,…] [--with INSTRUMENT,…] [--every] [--no-control]
                  plants one classic bug after the other and sees that a suite finds it";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let done = match args.next().as_deref() {
        Some("tidy") => tidy::run(&root()),
        Some("test") => suite::run(&root(), args.collect()),
        Some("seeded-bugs") => seeded::run(&root(), &args.collect::<Vec<_>>()),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(64);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace's folder: two above this crate's, which cargo names to what it runs. Not the one of
/// the build: checkouts that share a target folder share this binary.
fn root() -> PathBuf {
    let built = || env!("CARGO_MANIFEST_DIR").into();
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(built, PathBuf::from);
    here.ancestors().nth(2).unwrap_or(&here).to_path_buf()
}
