//! `trellis-check` as a shell sees it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

const HEADER: &str = r#"{"record":"header","version":1,"instrument":"hand","seed":1,"commit":"","profile":"","bounds":{"early_ms":50,"late_ms":500,"lease_ms":2000},"demands":{"acknowledged":1,"faults":0,"finals":0},"local_reads":false}
{"record":"opened","t":1,"connection":1,"client":0,"node":"n0"}
"#;

const PUT: &str = r#"{"record":"invoked","t":10,"op":1,"connection":1,"call":{"do":"put","tube":"t","priority":0,"delay":0,"ttr":10,"body":{"key":"a","bytes":2,"crc":7}}}
{"record":"replied","t":20,"op":1,"reply":{"say":"inserted","job":1}}
"#;

const LOST: &str = r#"{"record":"final","t":30,"ended":40,"node":"n0","applied":1,"digest":null,"digest_at":null,"up_to":9,"jobs":[],"tubes":[],"total_jobs":1}
"#;

fn file(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, text).expect("a file");
    path
}

fn run(args: &[&Path]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trellis-check"));
    command.args(args).output().expect("it runs")
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

#[test]
fn the_exit_code_says_sound_broken_or_worthless() {
    let sound = file("sound.jsonl", &format!("{HEADER}{PUT}"));
    let broken = file("broken.jsonl", &format!("{HEADER}{PUT}{LOST}"));
    let idle = file("idle.jsonl", HEADER);
    let noise = file("noise.jsonl", "hello\n");
    assert_eq!(code(&run(&[&sound])), Some(0));
    assert_eq!(code(&run(&[&broken])), Some(1));
    assert_eq!(code(&run(&[&idle])), Some(2));
    assert_eq!(code(&run(&[&noise])), Some(2));
    assert_eq!(code(&run(&[&noise, &broken, &sound])), Some(1));
    assert_eq!(code(&run(&[])), Some(64));
    assert_eq!(code(&run(&[Path::new("--what")])), Some(64));
}

#[test]
fn it_tells_people_and_programs_what_is_broken() {
    let broken = file("told.jsonl", &format!("{HEADER}{PUT}{LOST}"));
    let told = String::from_utf8(run(&[&broken]).stdout).expect("text");
    assert!(
        told.contains("BROKEN I1: an acknowledged put is never lost"),
        "{told}"
    );
    assert!(
        told.contains("put 0 0 10 2 [a] in t → INSERTED 1"),
        "{told}"
    );
    let told = run(&[Path::new("--json"), &broken]).stdout;
    let told: serde_json::Value = serde_json::from_slice(&told).expect("one object");
    assert_eq!(told["sound"], false);
    assert_eq!(told["verdict"]["findings"][0]["invariant"], "I1");
    let noise = file("words.jsonl", &format!("{HEADER}hello\n"));
    let words = String::from_utf8(run(&[&noise]).stderr).expect("text");
    assert!(
        words.contains("line 3 is no record of a history"),
        "{words}"
    );
}
