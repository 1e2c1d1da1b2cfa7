//! The provider's process: its start, its restarts, and the lines to it and from it.

use crate::workers::backends::children;
use crate::workers::backends::children::Started;
use crate::workers::backends::ray::messages::{Order, Report, Start, Want};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The first pause before it is started again.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// At its end it may take so long to take its places away.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// What the provider does.
#[derive(Debug)]
pub(crate) enum ProviderEvent {
    /// It says something.
    Said(Report),
    /// It has ended, and is started again; the last that it wrote to standard error.
    Ended(String),
}

/// The handle of a provider.
#[derive(Debug)]
pub(crate) struct Provider {
    wanted: watch::Sender<Option<Want>>,
    /// What it says.
    pub(crate) events: mpsc::UnboundedReceiver<ProviderEvent>,
    life: JoinHandle<()>,
}

impl Provider {
    /// Starts one with this interpreter.
    pub(crate) fn start(python: String, start: Start) -> Provider {
        let (wanted, wants) = watch::channel(None);
        let (said, events) = mpsc::unbounded_channel();
        let mut command = Command::new(python);
        command.args(["-m", "jitney.backends.ray"]);
        Provider { wanted, events, life: tokio::spawn(live(command, start, wants, said)) }
    }

    /// Says which places there should be.
    pub(crate) fn want(&self, want: Want) {
        self.wanted.send_if_modified(|known| {
            let is_new = known.as_ref() != Some(&want);
            *known = Some(want);
            is_new
        });
    }

    /// Takes every place away, and waits for its end.
    pub(crate) async fn end(self) {
        drop(self.wanted);
        let life = self.life.abort_handle();
        if timeout(END_TIMEOUT, self.life).await.is_err() {
            life.abort();
            tracing::warn!(
                "places in the Ray cluster were not taken away within {} s; they end by themselves",
                END_TIMEOUT.as_secs()
            );
        }
    }
}

/// Starts it again and again, until the handle is dropped.
async fn live(
    mut command: Command,
    start: Start,
    mut wants: watch::Receiver<Option<Want>>,
    said: mpsc::UnboundedSender<ProviderEvent>,
) {
    // Ctrl-C is for the front. Standard input ends with the front, and the provider with it.
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut pause = FIRST_PAUSE;
    loop {
        let (why, was_connected) = match children::start(|| command.spawn(), Child::id) {
            Ok((child, started)) => match Running::new(child, started) {
                Some(running) => match running.serve(&start, &mut wants, &said).await {
                    Some(ended) => ended,
                    None => return,
                },
                None => ("it has no pipes".to_owned(), false),
            },
            Err(error) => (error.to_string(), false),
        };
        if was_connected {
            pause = FIRST_PAUSE;
        }
        if said.send(ProviderEvent::Ended(why)).is_err() || is_over_within(pause, &mut wants).await {
            return;
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Waits. True if the handle was dropped.
async fn is_over_within(pause: Duration, wants: &mut watch::Receiver<Option<Want>>) -> bool {
    let over = async { while wants.changed().await.is_ok() {} };
    let is_over = timeout(pause, over).await.is_ok();
    // What was said meanwhile is said to the next one.
    wants.mark_changed();
    is_over
}

struct Running {
    child: Child,
    _started: Option<Started>,
    orders: ChildStdin,
    reports: Lines<BufReader<ChildStdout>>,
    errors: JoinHandle<String>,
}

impl Running {
    fn new(mut child: Child, started: Option<Started>) -> Option<Running> {
        let (orders, reports, errors) = (child.stdin.take()?, child.stdout.take()?, child.stderr.take()?);
        let mut lines = BufReader::new(errors).lines();
        let errors = tokio::spawn(async move {
            let mut last = String::new();
            while let Ok(Some(line)) = lines.next_line().await {
                tracing::debug!("Ray: {line}");
                if !line.trim().is_empty() {
                    last = line;
                }
            }
            last
        });
        Some(Running { child, _started: started, orders, reports: BufReader::new(reports).lines(), errors })
    }

    /// Serves until it ends: why, and whether it was connected to the cluster; `None` if the front has ended it.
    async fn serve(
        mut self,
        start: &Start,
        wants: &mut watch::Receiver<Option<Want>>,
        said: &mpsc::UnboundedSender<ProviderEvent>,
    ) -> Option<(String, bool)> {
        let mut was_connected = false;
        wants.mark_changed();
        let mut is_open = self.order(&Order::Start(start.clone())).await;
        while is_open {
            tokio::select! {
                line = self.reports.next_line() => match line {
                    Ok(Some(line)) => match serde_json::from_str::<Report>(&line) {
                        Ok(report) => {
                            was_connected |= matches!(report, Report::Connected { .. });
                            let _ = said.send(ProviderEvent::Said(report));
                        }
                        Err(error) => tracing::warn!("the process that calls Ray said what the front does not read: {error}"),
                    },
                    _ => is_open = false,
                },
                changed = wants.changed() => {
                    if changed.is_err() {
                        self.end().await;
                        return None;
                    }
                    let want = wants.borrow_and_update().clone();
                    if let Some(want) = want {
                        is_open = self.order(&Order::Want(want)).await;
                    }
                }
            }
        }
        let Running { mut child, orders, errors, .. } = self;
        drop(orders);
        let _ = child.start_kill();
        let status = child.wait().await.map_or_else(|error| error.to_string(), |status| status.to_string());
        // A process of Ray's that has inherited standard error may keep it open.
        let last = timeout(Duration::from_secs(1), errors).await.ok().and_then(Result::ok).unwrap_or_default();
        Some((if last.is_empty() { status } else { last }, was_connected))
    }

    async fn order(&mut self, order: &Order) -> bool {
        let mut line = serde_json::to_vec(order).expect("an order is plain data");
        line.push(b'\n');
        self.orders.write_all(&line).await.is_ok() && self.orders.flush().await.is_ok()
    }

    async fn end(mut self) {
        if self.order(&Order::End {}).await {
            let _ = self.child.wait().await;
        }
    }
}
