use std::{
    io,
    net::{SocketAddr, TcpListener},
    thread,
};

use axum::{
    Router,
    routing::{delete, get, post},
};

use crate::{View, actions, bounded::Bounded, figures, probes};

/// The admin port: its address is taken, nobody is answered before [`AdminPort::start`].
#[derive(Debug)]
pub struct AdminPort {
    listener: TcpListener,
}

/// Bytes of a request's body: the largest is a name and an address.
const REQUEST_BYTES_MAX: usize = 16 * 1024;

impl AdminPort {
    /// Takes the address. `[::]` means all addresses of both families.
    ///
    /// # Errors
    ///
    /// The system's reason.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener })
    }

    /// Where it is, with the port that the system chose.
    ///
    /// # Errors
    ///
    /// The system's reason.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers from now on, on a thread of its own, for as long as the process lives.
    ///
    /// # Errors
    ///
    /// That there is no thread to be had.
    pub fn start(self, view: View) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        thread::Builder::new()
            .name("trellis-admin".to_owned())
            .spawn(move || {
                let served = runtime.block_on(async move {
                    let listener = tokio::net::TcpListener::from_std(self.listener)?;
                    axum::serve(Bounded::new(listener), routes(view)).await
                });
                if let Err(error) = served {
                    tracing::error!(%error, "the admin port is closed");
                }
            })?;
        Ok(())
    }
}

fn routes(view: View) -> Router {
    Router::new()
        .route("/livez", get(probes::livez))
        .route("/readyz", get(probes::readyz))
        .route("/startupz", get(probes::startupz))
        .route("/lb", get(probes::lb))
        .route("/metrics", get(figures::metrics))
        .route("/v1/status", get(actions::status))
        .route("/v1/members", get(actions::members).post(actions::add))
        .route("/v1/members/{member}", delete(actions::remove))
        .route("/v1/transfer-leader", post(actions::transfer_leader))
        .route("/v1/drain", post(actions::drain))
        .route("/v1/snapshot", post(actions::snapshot))
        .route("/v1/unbind", post(actions::unbind))
        .route("/v1/rebuild", post(actions::rebuild))
        .layer(axum::extract::DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .with_state(view)
}
