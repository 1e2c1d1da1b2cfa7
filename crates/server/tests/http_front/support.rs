//! A front on a free port, an engine that is a closure, and clients that speak in raw bytes.

use jitney_core::config::manifest::{
    ArraySpec, DeploymentManifest, Input, InputKind, Output, Task, Term, serde_json_value,
};
use jitney_core::config::options::{DeploymentOptions, ServerOptions};
use jitney_server::base::keys::Keys;
use jitney_server::base::telemetry::Telemetry;
use jitney_server::engine::deployment::{Deployment, Inbound};
use jitney_server::engine::readiness::Readiness;
use jitney_server::engine::reply::ReplySender;
use jitney_server::engine::server_state::ServerState;
use jitney_server::protocols::connection::listen;
use jitney_server::protocols::routing::service;
use jitney_server::values::answer::{Answer, OutputPart, Timing};
use jitney_server::values::call::Call;
use jitney_server::values::tensor::{Dtype, Tag, TensorType};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// Nothing here takes longer unless it hangs.
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) fn server_options() -> ServerOptions {
    ServerOptions::for_test()
}

pub(crate) fn manifest(name: &str, kind: InputKind, arrays: Vec<ArraySpec>, output: &str) -> DeploymentManifest {
    DeploymentManifest {
        name: name.into(),
        route: None,
        method: None,
        doc: format!("About {name}."),
        options: DeploymentOptions::for_test(),
        option_sources: BTreeMap::new(),
        init: std::collections::BTreeMap::default(),
        input: Input { kind, name: String::new(), arrays, schema: serde_json_value::Value::Bool(true) },
        output: Output { kind: output.into(), arrays: vec![], schema: serde_json_value::Value::Bool(true), part: None },
        task: None,
        group_by: vec![],
        cost: None,
        uses: vec![],
        use_targets: std::collections::BTreeMap::new(),
        composed: None,
        examples: vec![],
    }
}

pub(crate) fn array(name: &str, dtype: &str, shape: Option<&[Option<u64>]>) -> ArraySpec {
    ArraySpec { name: name.into(), dtype: dtype.into(), shape: shape.map(<[_]>::to_vec), is_stacked: true }
}

pub(crate) fn terms(json: &str) -> Vec<Term> {
    serde_json::from_str(json).unwrap()
}

/// The deployments of most tests.
pub(crate) fn manifests() -> Vec<DeploymentManifest> {
    let mut grouped = manifest("grouped", InputKind::Object, vec![], "object");
    grouped.group_by = terms(
        r#"[{"source":{"field":{"name":"width","types":["int"],"default":512,"literals":[]}},"edges":null},
            {"source":{"field":{"name":"scale","types":["float"],"literals":[]}},"edges":null}]"#,
    );
    let mut embedder = manifest("embedder", InputKind::Object, vec![], "array");
    embedder.task = Some(Task::Embedding { takes_tokens: true, takes_dimensions: true });
    let fields = r#"{"properties": {"input": {}, "dimensions": {}, "input_type": {"enum": ["query", "passage"]}}}"#;
    embedder.input.schema = serde_json::from_str(fields).unwrap();
    embedder.group_by = terms(
        r#"[{"source":{"field":{"name":"input_type","types":["str"],"default":"query","literals":["query","passage"]}},
             "edges":null}]"#,
    );
    let mut chat = manifest("chat", InputKind::Object, vec![], "text");
    chat.task = Some(Task::Chat);
    chat.output.part = Some(Box::new(chat.output.clone()));
    let fields = r#"{"properties": {"messages": {}, "max_tokens": {"type": "integer"}, "seed": {"type": "integer"}}}"#;
    chat.input.schema = serde_json::from_str(fields).unwrap();
    let mut brief = manifest("brief", InputKind::Bytes, vec![], "bytes");
    brief.options.request_timeout_s = 0.2;
    let mut bytes = manifest("bytes", InputKind::Bytes, vec![], "bytes");
    bytes.output.part = Some(Box::new(bytes.output.clone()));
    vec![
        brief,
        chat,
        embedder,
        manifest("text", InputKind::Text, vec![], "text"),
        bytes,
        manifest("image", InputKind::Image, vec![], "image"),
        manifest("object", InputKind::Object, vec![], "object"),
        grouped,
        manifest("open", InputKind::Arrays, vec![array("x", "float32", None)], "array"),
        manifest("fixed", InputKind::Arrays, vec![array("x", "uint8", Some(&[Some(2), Some(2)]))], "array"),
        manifest(
            "two",
            InputKind::Arrays,
            vec![array("a", "float32", Some(&[None])), array("b", "bool", Some(&[Some(2)]))],
            "arrays",
        ),
    ]
}

/// What an engine does with each message.
pub(crate) trait Engine: FnMut(Inbound) + Send + 'static {}
impl<F: FnMut(Inbound) + Send + 'static> Engine for F {}

pub(crate) fn timing() -> Timing {
    Timing {
        queue: Duration::from_micros(1234),
        batch: Duration::from_micros(100),
        model: Duration::from_micros(5021),
        batch_size: 7,
    }
}

pub(crate) fn output(tag: Tag, data: impl Into<bytes::Bytes>) -> OutputPart {
    OutputPart { name: "".into(), tag, tensor: None, media_type: None, data: data.into() }
}

/// Answers with what came, in the way that the deployment's kind of answer suggests.
pub(crate) fn echo(message: Inbound) {
    let items = match message {
        Inbound::Submit(call, reply) => vec![(call, reply)],
        Inbound::SubmitMany { items, .. } => items,
        _ => return,
    };
    for (call, reply) in items {
        // The caller may have disconnected.
        reply.end(echo_answer(*call));
    }
}

pub(crate) fn echo_answer(call: Call) -> Answer {
    let names = ["a", "b"];
    let several = call.parts.len() > 1;
    let parts = call.parts.into_iter().enumerate().map(|(index, mut part)| OutputPart {
        name: if several { names[index] } else { "" }.into(),
        tag: part.tag,
        tensor: part.tensor,
        media_type: (part.tag == Tag::Bytes).then(|| "image/png".into()),
        data: part.data.contiguous().clone(),
    });
    Answer { result: Ok(parts.collect()), timing: timing(), tokens: None, end: None }
}

pub(crate) struct Front {
    pub(crate) address: String,
    pub(crate) state: Arc<ServerState>,
    stop: watch::Sender<bool>,
    served: JoinHandle<()>,
}

impl Front {
    pub(crate) async fn echo() -> Front {
        Front::with(server_options(), |_| echo).await
    }

    /// A front whose deployments all have the engine that `engine` makes for their name.
    pub(crate) async fn with<E: Engine>(options: ServerOptions, mut engine: impl FnMut(&str) -> E) -> Front {
        Front::guarded(options, None, &mut engine).await
    }

    /// A front that asks for these keys.
    pub(crate) async fn guarded<E: Engine>(
        options: ServerOptions,
        keys: Option<Keys>,
        mut engine: impl FnMut(&str) -> E,
    ) -> Front {
        let front = Front::start(options, keys).await;
        let mut deployments = Vec::new();
        for manifest in manifests() {
            let name = manifest.name.clone();
            let (inbound, mut messages) = mpsc::unbounded_channel();
            let mut engine = engine(&name);
            tokio::spawn(async move {
                while let Some(message) = messages.recv().await {
                    engine(message);
                }
            });
            deployments.push(Deployment::new(Arc::new(manifest), inbound, &front.state.telemetry));
        }
        let ready = deployments.iter().map(|deployment| (deployment.manifest.name.clone(), true)).collect();
        front.state.serve(deployments.into_iter().collect());
        front.state.set_readiness(Readiness { ready: true, deployments: ready, ..Readiness::default() });
        front
    }

    pub(crate) async fn loading(options: ServerOptions) -> Front {
        Front::start(options, None).await
    }

    async fn start(options: ServerOptions, keys: Option<Keys>) -> Front {
        let listeners = listen::bind(&options.listen).await.unwrap();
        let address = listeners[0].local_address().trim_start_matches("tcp:").to_owned();
        let mut state = ServerState::new(options, Arc::new(Telemetry::new()));
        state.keys = keys.map(Arc::new);
        let state = Arc::new(state);
        let (stop, stopped) = watch::channel(false);
        let served = tokio::spawn(service::serve(listeners, state.clone(), stopped));
        Front { address, state, stop, served }
    }

    pub(crate) async fn connect(&self) -> Client {
        Client { stream: TcpStream::connect(&self.address).await.unwrap(), buffer: vec![] }
    }

    /// One request on a separate connection.
    pub(crate) async fn send(&self, request: &str) -> Reply {
        self.send_bytes(request.as_bytes()).await
    }

    pub(crate) async fn send_bytes(&self, request: &[u8]) -> Reply {
        let mut client = self.connect().await;
        client.write(request).await;
        client.reply().await.expect("an answer")
    }

    /// A `POST` with these header lines.
    pub(crate) async fn post(&self, path: &str, headers: &str, body: impl AsRef<[u8]>) -> Reply {
        self.send_bytes(&post(path, headers, body)).await
    }

    /// The front gives right answers.
    pub(crate) async fn assert_well(&self) {
        let reply = self.post("text", "content-type: text/plain\r\n", "still well").await;
        assert_eq!((reply.status, reply.text()), (200, "\"still well\""));
    }

    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }

    pub(crate) async fn ended(self) {
        self.stop();
        tokio::time::timeout(LONG, self.served).await.expect("the front ends").unwrap();
    }
}

pub(crate) fn post(path: &str, headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let mut request =
        format!("POST /{path} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {}\r\n\r\n", body.len())
            .into_bytes();
    request.extend_from_slice(body);
    request
}

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    buffer: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Client {
    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        // The other end may refuse and close before all is written.
        let _ = self.stream.write_all(bytes.as_ref()).await;
    }

    /// The next answer; `None` if the connection ends first.
    pub(crate) async fn reply(&mut self) -> Option<Reply> {
        self.reply_to(true).await
    }

    pub(crate) async fn reply_to(&mut self, has_body: bool) -> Option<Reply> {
        loop {
            if let Some(end) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                let head = String::from_utf8(self.buffer[..end + 2].to_vec()).unwrap();
                let status = head[9..12].parse().unwrap();
                let mut reply = Reply { status, head, body: vec![] };
                let length =
                    if has_body { reply.header("content-length").map_or(0, |text| text.parse().unwrap()) } else { 0 };
                if self.buffer.len() >= end + 4 + length {
                    reply.body = self.buffer[end + 4..end + 4 + length].to_vec();
                    self.buffer.drain(..end + 4 + length);
                    return Some(reply);
                }
            }
            let mut more = vec![0; 65536];
            match tokio::time::timeout(LONG, self.stream.read(&mut more)).await.expect("an answer or the end") {
                Ok(0) | Err(_) => return None,
                Ok(read) => self.buffer.extend_from_slice(&more[..read]),
            }
        }
    }

    /// Whether the connection has ended, waiting for it.
    pub(crate) async fn is_closed(&mut self) -> bool {
        self.reply().await.is_none()
    }
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(": "))
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn reason(&self) -> &str {
        self.header("x-jitney-reason").unwrap_or("")
    }
}

type Forward = Box<dyn FnMut(Inbound) + Send>;

/// An engine that hands its messages to the test.
pub(crate) fn watched() -> (impl FnMut(&str) -> Forward, mpsc::UnboundedReceiver<Inbound>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let engine = move |_: &str| {
        let sender = sender.clone();
        let forward: Forward = Box::new(move |message| drop(sender.send(message)));
        forward
    };
    (engine, receiver)
}

pub(crate) async fn submitted(messages: &mut mpsc::UnboundedReceiver<Inbound>) -> (Call, ReplySender) {
    match tokio::time::timeout(LONG, messages.recv()).await.expect("a message").expect("an open channel") {
        Inbound::Submit(call, reply) => (*call, reply),
        other => panic!("{other:?} instead of a call"),
    }
}

/// The items of one request.
pub(crate) async fn submitted_many(messages: &mut mpsc::UnboundedReceiver<Inbound>) -> Vec<(Call, ReplySender)> {
    match tokio::time::timeout(LONG, messages.recv()).await.expect("a message").expect("an open channel") {
        Inbound::SubmitMany { items, .. } => items.into_iter().map(|(call, reply)| (*call, reply)).collect(),
        // A request of one item.
        Inbound::Submit(call, reply) => vec![(*call, reply)],
        other => panic!("{other:?} instead of many calls"),
    }
}

pub(crate) fn f32s(values: &[f32], shape: &[u64]) -> OutputPart {
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    OutputPart {
        tensor: Some(TensorType { dtype: Dtype::Float32, shape: shape.iter().copied().collect() }),
        ..output(Tag::Tensor, data)
    }
}
