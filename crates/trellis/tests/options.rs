//! The program as a shell sees it: flags, exit codes, Unix sockets. Sharp edges 133 and 134.

use std::{
    fs,
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use trellis_testkit::process::{Killed, free_base_port, temporary_folder};

/// The program. That a test of this package names it also makes `cargo test --workspace` build it
/// for the tests of other packages.
const TRELLIS: &str = env!("CARGO_BIN_EXE_trellis");

/// How long anything in here may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs `trellis` with these arguments; it must end by itself.
fn trellis(arguments: &[&str]) -> Output {
    Command::new(TRELLIS)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("it can be run")
}

/// Starts `trellis serve` that listens on `path` only.
fn serve_on(path: &Path, data: &Path) -> Killed {
    let port = free_base_port().expect("a port");
    let child = Command::new(TRELLIS)
        .args(["serve", "-l", &format!("unix:{}", path.display()), "-b"])
        .arg(data)
        .args(["--peer-listen", &format!("127.0.0.1:{}", port + 1)])
        .args(["--admin-listen", &format!("127.0.0.1:{}", port + 2)])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    Killed(child.expect("it can be run"))
}

/// One question on a Unix socket, asked again until somebody listens.
fn ask(path: &Path, line: &[u8], answer: &mut [u8]) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        let asked = UnixStream::connect(path).and_then(|mut stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(line)?;
            stream.read_exact(answer)
        });
        match asked {
            Err(last) if Instant::now() > until => return Err(last),
            Err(_) => thread::sleep(Duration::from_millis(20)),
            Ok(()) => return Ok(()),
        }
    }
}

#[test]
fn edge_133_version_and_help_end_well_and_mistakes_do_not() {
    let version = trellis(&["--version"]);
    assert!(version.status.success());
    assert!(
        String::from_utf8_lossy(&version.stdout).starts_with("trellis "),
        "{version:?}"
    );
    assert!(trellis(&["--help"]).status.success());
    let version = trellis(&["serve", "-v"]);
    assert!(
        String::from_utf8_lossy(&version.stdout).starts_with("trellis 0."),
        "{version:?}"
    );
    let help = trellis(&["serve", "--help"]);
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    for flag in ["-f <MS>", "-F", "-s <BYTES>", "-n", "-c"] {
        assert!(
            help.contains(flag),
            "{flag} is accepted, and so told:\n{help}"
        );
    }

    for (mistake, arguments) in [
        ("an unknown flag", &["serve", "--nonsense"][..]),
        ("a missing value", &["serve", "-z"]),
        ("no number", &["serve", "-z", "abc"]),
        ("a stray argument", &["serve", "stray"]),
    ] {
        let ended = trellis(arguments);
        assert_eq!(ended.status.code(), Some(64), "{mistake}: {ended:?}");
        assert!(!ended.stderr.is_empty(), "{mistake} deserves a sentence");
    }

    let folder = temporary_folder().expect("a folder");
    let data = folder.path().join("data");
    let data = data.to_str().expect("a path in UTF-8");
    let too_big = trellis(&["serve", "-b", data, "-z", "2000000000"]);
    assert_eq!(too_big.status.code(), Some(78), "{too_big:?}");
    let said = String::from_utf8_lossy(&too_big.stderr).into_owned();
    assert!(
        said.contains("body_bytes_max") && said.contains("67108864"),
        "{said}"
    );
}

#[test]
fn edge_134_a_unix_socket_serves_and_its_stale_file_is_replaced() {
    let folder = temporary_folder().expect("a folder");
    let (path, data) = (folder.path().join("socket"), folder.path().join("data"));
    for _ in 0..2 {
        let server = serve_on(&path, &data);
        let mut answer = [0; 15];
        ask(&path, b"list-tube-used\r\n", &mut answer).expect("an answer");
        assert_eq!(answer, *b"USING default\r\n");
        drop(server);
        assert!(path.exists(), "the file of a killed server stays behind");
    }

    let other = folder.path().join("other");
    fs::write(&other, "not a socket").expect("a file");
    let mut refused = serve_on(&other, &data);
    let until = Instant::now() + PATIENCE;
    while refused.0.try_wait().expect("a child").is_none() {
        assert!(
            Instant::now() < until,
            "it should have refused to replace a file that is no socket"
        );
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(
        fs::read_to_string(&other).expect("the file"),
        "not a socket"
    );
}
