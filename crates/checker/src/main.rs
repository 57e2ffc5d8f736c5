//! `trellis-check FILE…`: the verdict on recorded histories.

use std::{
    fs::File,
    io::{self, BufReader, Write},
    path::Path,
    process::ExitCode,
};

use trellis_checker::{Verdict, check, history};

const USAGE: &str = "usage: trellis-check [--json] FILE...

  Reads histories and says of each whether it is sound (exit code 0), broken (1) or proves nothing
  (2: rejected, or not a history). With --json one object a line.";

fn main() -> ExitCode {
    let (flags, files): (Vec<_>, Vec<_>) = std::env::args()
        .skip(1)
        .partition(|arg| arg.starts_with('-'));
    let json = match flags.as_slice() {
        [] => false,
        [flag] if flag == "--json" => true,
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(64);
        }
    };
    if files.is_empty() {
        eprintln!("{USAGE}");
        return ExitCode::from(64);
    }
    let mut worst = 0;
    for file in &files {
        let code = match verdict(Path::new(file)) {
            Ok(verdict) => tell(file, &verdict, json),
            Err(words) => {
                eprintln!("trellis-check: {file}: {words}");
                2
            }
        };
        // A broken promise is worse than a run that proves nothing.
        worst = match (worst, code) {
            (1, _) | (_, 1) => 1,
            (worst, code) => worst.max(code),
        };
    }
    ExitCode::from(worst)
}

fn verdict(file: &Path) -> Result<Verdict, String> {
    let input = File::open(file).map_err(|error| error.to_string())?;
    let records: Result<Vec<_>, _> = history::read(BufReader::new(input)).collect();
    check(records.map_err(|error| error.to_string())?).map_err(|error| error.to_string())
}

fn tell(file: &str, verdict: &Verdict, json: bool) -> u8 {
    let mut out = io::stdout().lock();
    let text = if json {
        let told =
            serde_json::json!({ "file": file, "sound": verdict.is_sound(), "verdict": verdict });
        format!("{told}\n")
    } else {
        format!("{file}\n{verdict}")
    };
    // Whoever closed the pipe is not interested.
    let _ = out.write_all(text.as_bytes());
    match verdict {
        verdict if verdict.is_sound() => 0,
        verdict if verdict.findings.is_empty() => 2,
        _ => 1,
    }
}
