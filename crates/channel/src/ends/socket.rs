//! Options of the TCP connections between machines.

use rustix::net::sockopt;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// Milliseconds after which the kernel gives up bytes that the other machine does not confirm. Its default is 15 minutes.
const USER_TIMEOUT_MS: u32 = 10_000;

/// Sends small frames immediately, and notices a machine that no longer answers. The send buffer stays the kernel's matter: a fixed
/// one limits what a long way carries.
pub(crate) fn tune(socket: &impl AsFd) -> io::Result<()> {
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_tcp_user_timeout(socket, USER_TIMEOUT_MS)?;
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(5))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(2))?;
    sockopt::set_tcp_keepcnt(socket, 3)?;
    sockopt::set_socket_keepalive(socket, true)?;
    Ok(())
}

/// The time for one address of a host, of what is left for it and for so many others: an address without a machine must not take
/// the time of the next one.
pub(crate) fn share(left: Duration, others: usize) -> Duration {
    left / (others as u32 + 1)
}
