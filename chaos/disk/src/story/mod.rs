//! Stories of three nodes on such disks.
use clap::Parser;

/// Which.
#[derive(Parser)]
pub struct Args {}

/// Tells them.
///
/// # Errors
///
/// None yet.
pub fn run(_args: &Args) -> anyhow::Result<()> {
    Ok(())
}
