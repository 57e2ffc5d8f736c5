//! `trellis local`: a whole cluster on this machine, the quick start.

mod shape;

use std::{
    fs, io,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::Signal;
use tokio::{
    process::{Child, Command},
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    time::{Instant, sleep, timeout},
};

use crate::{
    admin::Admin,
    args::LocalArgs,
    commands::print,
    exit::{Ended, Exit},
    ports::Ports,
};

/// A node that died is started again after this long.
const RESTART_AFTER: Duration = Duration::from_secs(3);

/// How often a node that starts is asked whether it is ready.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// A node that is told to stop and does not is killed after this long.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// Between telling the nodes to stop in good order and telling them to stop at once: when all of
/// them stop there is nobody to hand anything over to.
const STOP_POLITELY: Duration = Duration::from_millis(150);

/// Runs the cluster until Ctrl-C or SIGTERM.
///
/// # Errors
///
/// [`Exit::Usage`] for ports beyond 65535, [`Exit::Folder`] if the data folder cannot be made or the
/// cluster runs already, [`Exit::System`] if a node cannot be started at all.
pub(crate) fn run(args: &LocalArgs) -> Result<(), Ended> {
    // One thread: the children are to die with this process, and the kernel counts the thread
    // that started them as their parent.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Ended::new(Exit::System, error.to_string()))?;
    let local = Local::new(args)?;
    let _running = shape::take(args)?;
    let result = runtime.block_on(local.run());
    // A question that is still on its way must not hold up the end.
    runtime.shutdown_background();
    result
}

/// One line on standard output; whoever closed it is not interested.
macro_rules! say {
    ($($arg:tt)*) => { print(&format!("{}\n", format_args!($($arg)*))) };
}

struct Local {
    nodes: Vec<Node>,
    restart: bool,
}

/// One of the nodes, whether it runs or not.
struct Node {
    index: u16,
    ports: Ports,
    folder: PathBuf,
    arguments: Vec<String>,
}

/// What happens while the cluster runs.
enum Happening {
    /// A node said that it is ready.
    Ready(usize),
    /// A node ended.
    Died(usize, io::Result<ExitStatus>),
    /// A node is to be started again.
    StartAgain(usize),
}

impl Local {
    fn new(args: &LocalArgs) -> Result<Self, Ended> {
        let ports: Vec<Ports> = (0..args.nodes)
            .map(|index| Ports::of(args.base_port, index))
            .collect::<Option<_>>()
            .ok_or_else(|| {
                Ended::new(
                    Exit::Usage,
                    format!("--base-port is {}; allowed is a port that leaves room for {} nodes below 65536", args.base_port, args.nodes),
                )
            })?;
        let members: Vec<String> = ports
            .iter()
            .enumerate()
            .map(|(index, ports)| format!("trellis-{index}=127.0.0.1:{}", ports.peers))
            .collect();
        let members = members.join(",");
        let mut nodes = Vec::new();
        for (index, ports) in (0..).zip(ports) {
            let folder = args.data_dir.join(format!("node-{index}"));
            let mut arguments = vec!["serve".to_owned()];
            let mut say = |flag: &str, value: String| arguments.extend([flag.to_owned(), value]);
            if let Some(config) = &args.config {
                say("--config", config.display().to_string());
            }
            say("--name", format!("trellis-{index}"));
            say("--data-dir", folder.display().to_string());
            say("--listen", format!("127.0.0.1:{}", ports.clients));
            say("--peer-listen", format!("127.0.0.1:{}", ports.peers));
            say("--peer-address", format!("127.0.0.1:{}", ports.peers));
            say("--admin-listen", format!("127.0.0.1:{}", ports.admin));
            say("--initial-members", members.clone());
            if std::env::var_os("TRELLIS_LOG").is_none() && args.config.is_none() {
                say("--set", "log=warn".to_owned());
            }
            for pair in &args.set {
                say("--set", pair.clone());
            }
            nodes.push(Node {
                index,
                ports,
                folder,
                arguments,
            });
        }
        Ok(Self {
            nodes,
            restart: !args.no_restart,
        })
    }

    async fn run(self) -> Result<(), Ended> {
        let listen_for =
            |kind| signal(kind).map_err(|error| Ended::new(Exit::System, error.to_string()));
        let mut interrupt = listen_for(SignalKind::interrupt())?;
        let mut terminate = listen_for(SignalKind::terminate())?;
        let mut hang_up = listen_for(SignalKind::hangup())?;
        let mut refuse_puts = listen_for(SignalKind::user_defined1())?;

        let (tell, mut happenings) = mpsc::channel(64);
        let mut pids: Vec<Option<u32>> = vec![None; self.nodes.len()];
        let begin = Instant::now();
        for at in 0..self.nodes.len() {
            match self.start(at, &tell) {
                Ok(pid) => pids[at] = pid,
                Err(ended) => {
                    stop(&mut pids, &mut happenings).await;
                    return Err(ended);
                }
            }
        }

        let mut ready = vec![false; self.nodes.len()];
        let mut announced = false;
        loop {
            let happening = tokio::select! {
                happening = happenings.recv() => happening,
                _ = interrupt.recv() => None,
                _ = terminate.recv() => None,
                _ = hang_up.recv() => None,
                _ = refuse_puts.recv() => {
                    say!("SIGUSR1: every node is told to refuse puts until it is started again");
                    tell_all(&pids, Signal::USR1);
                    continue;
                }
            };
            let Some(happening) = happening else { break };
            match happening {
                Happening::Ready(at) => {
                    let Node { index, ports, .. } = &self.nodes[at];
                    say!(
                        "node {index} ready: clients 127.0.0.1:{}, admin http://127.0.0.1:{}",
                        ports.clients,
                        ports.admin
                    );
                    ready[at] = true;
                    if !announced && ready.iter().all(|ready| *ready) {
                        announced = true;
                        let clients: Vec<String> = self
                            .nodes
                            .iter()
                            .map(|node| format!("127.0.0.1:{}", node.ports.clients))
                            .collect();
                        say!(
                            "cluster ready after {:.1} s: connect any beanstalkd client to {}; Ctrl-C stops it",
                            begin.elapsed().as_secs_f32(),
                            clients.join(" or ")
                        );
                    }
                }
                Happening::Died(at, status) => {
                    pids[at] = None;
                    ready[at] = false;
                    let index = self.nodes[at].index;
                    let how = match &status {
                        Ok(status) => status.to_string(),
                        Err(error) => error.to_string(),
                    };
                    // What a first start refuses, the next one will refuse as well.
                    let hopeless = status
                        .ok()
                        .and_then(|status| status.code())
                        .and_then(Exit::hopeless);
                    if let Some(exit) = hopeless.filter(|_| !announced) {
                        stop(&mut pids, &mut happenings).await;
                        return Err(Ended::new(
                            exit,
                            format!("node {index} does not start ({how})"),
                        ));
                    }
                    if self.restart {
                        say!(
                            "node {index} ended ({how}); it is started again in {} s",
                            RESTART_AFTER.as_secs()
                        );
                        let tell = tell.clone();
                        tokio::spawn(async move {
                            sleep(RESTART_AFTER).await;
                            // Nobody listens any more when the cluster stops.
                            let _ = tell.send(Happening::StartAgain(at)).await;
                        });
                    } else {
                        say!("node {index} ended ({how})");
                        if pids.iter().all(Option::is_none) {
                            return Err(Ended::new(Exit::Temporary, "no node is left"));
                        }
                    }
                }
                Happening::StartAgain(at) => match self.start(at, &tell) {
                    Ok(pid) => pids[at] = pid,
                    Err(Ended { why, .. }) => {
                        say!("node {}: {why}", self.nodes[at].index);
                        let tell = tell.clone();
                        tokio::spawn(async move {
                            sleep(RESTART_AFTER).await;
                            let _ = tell.send(Happening::StartAgain(at)).await;
                        });
                    }
                },
            }
        }
        say!("stopping");
        stop(&mut pids, &mut happenings).await;
        Ok(())
    }

    /// Starts node `at`; two tasks tell when it is ready and when it has ended.
    fn start(&self, at: usize, tell: &mpsc::Sender<Happening>) -> Result<Option<u32>, Ended> {
        let node = &self.nodes[at];
        fs::create_dir_all(&node.folder).map_err(|error| {
            Ended::new(
                Exit::Folder,
                format!(
                    "cannot make the data folder {}: {error}",
                    node.folder.display()
                ),
            )
        })?;
        let system = |error: io::Error| {
            Ended::new(
                Exit::System,
                format!("cannot start node {}: {error}", node.index),
            )
        };
        let mut child = Command::new(std::env::current_exe().map_err(system)?)
            .args(&node.arguments)
            .args(["--die-with-parent", &std::process::id().to_string()])
            .stdin(Stdio::null())
            // Ctrl-C in a terminal goes to this process, which stops the nodes in its own way.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(system)?;
        let pid = child.id();
        let (ended, is_over) = tokio::sync::watch::channel(false);
        let died = tell.clone();
        tokio::spawn(async move {
            let status = wait(&mut child).await;
            ended.send_replace(true);
            let _ = died.send(Happening::Died(at, status)).await;
        });
        tokio::spawn(ask_until_ready(at, node.ports.admin, is_over, tell.clone()));
        Ok(pid)
    }
}

async fn wait(child: &mut Child) -> io::Result<ExitStatus> {
    child.wait().await
}

/// Tells when the node at `port` is ready; gives up when it has ended.
async fn ask_until_ready(
    at: usize,
    port: u16,
    mut is_over: tokio::sync::watch::Receiver<bool>,
    tell: mpsc::Sender<Happening>,
) {
    loop {
        let asked = tokio::task::spawn_blocking(move || {
            Admin::with_patience(&format!("127.0.0.1:{port}"), Duration::from_secs(2))
                .get("/readyz")
                .is_ok_and(|said| said.status == 200)
        });
        tokio::select! {
            ready = asked => if ready.unwrap_or(false) {
                let _ = tell.send(Happening::Ready(at)).await;
                return;
            },
            () = over(&mut is_over) => return,
        }
        tokio::select! {
            () = sleep(ASK_EVERY) => {}
            () = over(&mut is_over) => return,
        }
    }
}

/// Resolves when the node has ended.
async fn over(is_over: &mut tokio::sync::watch::Receiver<bool>) {
    // An error means that nobody can say it any more: over as well.
    let _ = is_over.wait_for(|over| *over).await;
}

/// Sends a signal to every node that runs.
fn tell_all(pids: &[Option<u32>], what: Signal) {
    for pid in pids.iter().flatten() {
        let pid = i32::try_from(*pid)
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            // It may have ended this moment.
            let _ = rustix::process::kill_process(pid, what);
        }
    }
}

/// Stops all nodes: in good order, then at once, then by force.
async fn stop(pids: &mut [Option<u32>], happenings: &mut mpsc::Receiver<Happening>) {
    let steps = [
        (Signal::TERM, STOP_POLITELY),
        (Signal::TERM, STOP_WITHIN),
        (Signal::KILL, STOP_WITHIN),
    ];
    for (what, within) in steps {
        tell_all(pids, what);
        let all_over = async {
            while pids.iter().any(Option::is_some) {
                match happenings.recv().await {
                    Some(Happening::Died(at, _)) => pids[at] = None,
                    Some(_) => {}
                    None => return,
                }
            }
        };
        if timeout(within, all_over).await.is_ok() {
            return;
        }
    }
}
