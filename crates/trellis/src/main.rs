//! Floor 6: the one binary. Assembles a node from the floors below, reads its configuration, and
//! talks to running nodes.
//!
//! Architecture invariant: only this crate knows that there is a command line, an environment and
//! a configuration file; everything below gets checked settings.

mod admin;
mod args;
mod commands;
mod config;
mod exit;
mod gather;
mod local;
mod ports;
mod serve;
mod settings;
mod telemetry;
mod text;

use std::process::ExitCode;

use clap::Parser as _;

use args::{Cli, Command, ConfigCommand, ServeArgs};
use config::Said;
use exit::{Ended, Exit};
use settings::Settings;

/// It gives back what a wave of jobs took, and takes less time than the system's own
/// (docs/performance.md). RocksDB's C++ keeps to the system's: were this one to replace `malloc`,
/// no process could start under a library that fakes its clock, as the stories of faults do.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // `--help` and `--version` come here too.
            let exit = if error.use_stderr() {
                Exit::Usage
            } else {
                Exit::Done
            };
            // A pipe that is closed is no reason to fail.
            let _ = error.print();
            return exit.into();
        }
    };
    let result = match cli.command {
        Command::Serve(args) => serve::run(&args),
        Command::Local(args) => local::run(&args),
        Command::Status { admin, json } => commands::status(&admin, json),
        Command::Member { what } => commands::member(what),
        Command::Snapshot { admin } => commands::snapshot(&admin),
        Command::Drain { admin } => commands::drain(&admin),
        Command::Rebuild {
            data_dir,
            force,
            admin,
        } => commands::rebuild(&admin, data_dir.as_deref(), force),
        Command::Health { admin } => commands::health(&admin),
        Command::Config { what } => config_command(what),
    };
    match result {
        Ok(()) => Exit::Done.into(),
        Err(Ended { exit, why }) => {
            eprintln!("trellis: {why}");
            exit.into()
        }
    }
}

/// `trellis config …`
fn config_command(what: ConfigCommand) -> Result<(), Ended> {
    match what {
        ConfigCommand::Check(args) => {
            let (_, settings) = settings_of(&args)?;
            println!("the configuration of {} is sound", settings.name);
        }
        ConfigCommand::Show(args) => {
            let (said, settings) = settings_of(&args)?;
            let shown = toml::to_string(&settings.in_force(said.config))
                .map_err(|error| Ended::new(Exit::Defect, error.to_string()))?;
            print!("{shown}");
        }
    }
    Ok(())
}

/// Reads and checks the configuration.
///
/// # Errors
///
/// [`Exit::Config`] with one sentence about the first mistake.
fn settings_of(args: &ServeArgs) -> Result<(Said, Settings), Ended> {
    let mistake = |mistake: config::Mistake| Ended::new(Exit::Config, mistake.to_string());
    let said = config::read(args).map_err(mistake)?;
    let settings = Settings::check(&said).map_err(mistake)?;
    Ok((said, settings))
}
