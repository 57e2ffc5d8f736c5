//! What docs/operations.md tells people to write down for three machines, done as it says: only the
//! addresses are others.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use trellis_testkit::process::{Killed, free_base_port, temporary_folder};

const TRELLIS: &str = env!("CARGO_BIN_EXE_trellis");

const PATIENCE: Duration = Duration::from_secs(60);

/// The block of that language in the section about three machines.
fn example(language: &str) -> String {
    let page = Path::new("../../docs/operations.md");
    let page = fs::read_to_string(page).expect("the page");
    let (_, section) = page.split_once("## Three machines").expect("the section");
    let (_, block) = section
        .split_once(&format!("```{language}\n"))
        .expect("the block");
    block.split_once("```").expect("its end").0.to_owned()
}

/// The example as machine number `index` has it: on a loopback address of its own.
fn on_machine(index: usize, folder: &Path, port: u16) -> String {
    let own = format!("\"127.0.0.{}", index + 1);
    let lines = example("toml");
    let lines = lines.lines().map(|line| match line.split_once(" = ") {
        Some(("name", _)) => format!("name = \"trellis-{index}\""),
        Some(("data_dir", _)) => format!("data_dir = \"{}\"", folder.display()),
        Some(("initial_members", _)) | None => line.replace("=10.0.0.", "=127.0.0."),
        Some(_) => line.replace("\"10.0.0.1", &own),
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    text.replace(":11301", &format!(":{}", port + 1))
        .replace(":11302", &format!(":{}", port + 2))
}

fn say(machine: usize, port: u16, text: &str, answer: &str) {
    let address = format!("127.0.0.{}:{port}", machine + 1);
    let mut client = TcpStream::connect(address).expect("it is ready");
    client.set_read_timeout(Some(PATIENCE)).expect("a socket");
    client.write_all(text.as_bytes()).expect("it reads");
    let mut heard = vec![0; answer.len()];
    client.read_exact(&mut heard).expect("it answers");
    assert_eq!(String::from_utf8_lossy(&heard), answer);
}

#[test]
fn the_configuration_of_three_machines_makes_a_cluster() {
    let folder = temporary_folder().expect("a folder");
    let port = free_base_port().expect("a port");
    let nodes: Vec<Killed> = (0..3)
        .map(|index| {
            let file = folder.path().join(format!("{index}.toml"));
            let data = folder.path().join(index.to_string());
            fs::write(&file, on_machine(index, &data, port)).expect("a file");
            let child = Command::new(TRELLIS)
                .args(["serve", "-p", &port.to_string(), "--config"])
                .arg(&file)
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            Killed(child.expect("it can be run"))
        })
        .collect();
    let until = Instant::now() + PATIENCE;
    for index in 0..nodes.len() {
        loop {
            let addr = format!("127.0.0.{}:{}", index + 1, port + 2);
            let asked = Command::new(TRELLIS)
                .args(["health", "--addr", &addr])
                .output()
                .expect("it can be run");
            if asked.status.success() {
                break;
            }
            assert!(Instant::now() < until, "machine {index}: {asked:?}");
            thread::sleep(Duration::from_millis(100));
        }
    }
    say(1, port, "put 0 0 60 1\r\na\r\n", "INSERTED 1\r\n");
    say(2, port, "reserve\r\n", "RESERVED 1 1\r\na\r\n");
}
