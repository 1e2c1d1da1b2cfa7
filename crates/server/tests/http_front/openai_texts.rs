//! The routes of the OpenAI API for texts: several answers to one request.

use crate::support::{Client, Front, output, post, server_options, submitted_many, timing, watched};
use jitney_core::tables::outcome::Outcome;
use jitney_server::engine::deployment::Inbound;
use jitney_server::engine::reply::{PartSent, ReplySender};
use jitney_server::values::answer::{Answer, Failure, StreamEnd, Usage};
use jitney_server::values::call::Call;
use jitney_server::values::tensor::Tag;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;

type Messages = mpsc::UnboundedReceiver<Inbound>;

async fn ask(client: &mut Client, messages: &mut Messages, fields: &str) -> Vec<(Call, ReplySender)> {
    client
        .write(post(
            "v1/chat/completions",
            "connection: close\r\n",
            format!("{{\"model\": \"chat\", \"messages\": [7]{fields}}}"),
        ))
        .await;
    submitted_many(messages).await
}

/// Head and body, up to the end of the connection: bodies of streams have no length.
async fn read(client: &mut Client) -> String {
    let mut bytes = Vec::new();
    client.stream.read_to_end(&mut bytes).await.unwrap();
    String::from_utf8(bytes).unwrap()
}

fn item(call: &Call) -> serde_json::Value {
    serde_json::from_slice(&call.parts[0].data.0.concat()).unwrap()
}

fn say(reply: &mut ReplySender, text: &str) {
    assert!(matches!(reply.try_part([output(Tag::Text, text.to_owned())].into_iter().collect()), PartSent::Taken));
}

fn end(text: Option<&str>) -> Answer {
    let end = StreamEnd { reason: "length".into(), usage: Some(Usage { input: 5, output: 1 }) };
    let values = text.map(|text| output(Tag::Text, text.to_owned())).into_iter().collect();
    Answer { result: Ok(values), timing: timing(), tokens: None, end: Some(Box::new(end)) }
}

fn failed() -> Answer {
    Answer::failed(Failure::new(Outcome::ModelFailed, "it failed"))
}

#[tokio::test]
async fn each_choice_is_an_item_with_a_seed_of_its_own() {
    let (engine, mut messages) = watched();
    let front = Front::with(server_options(), engine).await;
    let mut client = front.connect().await;
    let fields = r#", "n": 2, "seed": 9223372036854775807, "max_completion_tokens": 3, "temperature": 1"#;
    let items = ask(&mut client, &mut messages, fields).await;
    let seeds = [i64::MAX, i64::MIN];
    for ((call, reply), seed) in items.into_iter().zip(seeds) {
        assert_eq!(item(&call), serde_json::json!({ "messages": [7], "max_tokens": 3, "seed": seed }));
        assert!(!call.streams && reply.end(end(Some("a"))));
    }
    let answer = client.reply().await.unwrap().json();
    assert_eq!(answer["choices"][1]["message"]["content"], "a");
    assert_eq!(answer["usage"], serde_json::json!({ "prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7 }));
}

#[tokio::test]
async fn choices_alternate_in_one_stream() {
    let (engine, mut messages) = watched();
    let front = Front::with(server_options(), engine).await;
    let mut client = front.connect().await;
    let items = ask(&mut client, &mut messages, r#", "n": 2, "stream": true"#).await;
    let [(first, mut one), (_, mut two)] = <[_; 2]>::try_from(items).unwrap();
    assert!(first.streams);
    say(&mut two, "b");
    say(&mut one, "a");
    assert!(two.end(end(None)) && one.end(end(None)));
    let text = read(&mut client).await;
    for index in 0..2 {
        assert_eq!(text.matches(&format!("\"choices\":[{{\"index\":{index},")).count(), 3, "{text}");
    }
    assert_eq!(text.matches("data: [DONE]\n\n").count(), 1, "{text}");
}

#[tokio::test]
async fn a_choice_that_fails_ends_the_others() {
    let (engine, mut messages) = watched();
    let front = Front::with(server_options(), engine).await;
    for is_begun in [false, true] {
        let mut client = front.connect().await;
        let items = ask(&mut client, &mut messages, r#", "n": 2, "stream": true"#).await;
        let [(first, mut one), (_, two)] = <[_; 2]>::try_from(items).unwrap();
        if is_begun {
            say(&mut one, "a");
        }
        assert!(two.end(failed()));
        let Some(Inbound::Cancel(id)) = messages.recv().await else { panic!("it is not cancelled") };
        assert_eq!(id, first.id);
        assert!(matches!(messages.recv().await, Some(Inbound::Cancel(_))));
        let text = read(&mut client).await;
        let status = if is_begun { "HTTP/1.1 200" } else { "HTTP/1.1 500" };
        assert!(text.starts_with(status) && text.contains("\"code\":\"model_failed\""), "{text}");
        assert_eq!(text.contains("data: {\"error\":{\"message\":"), is_begun, "{text}");
        assert!(!text.contains("[DONE]"), "{text}");
    }
    let text = front.state.telemetry.text();
    assert!(text.contains("jitney_requests_total{deployment=\"chat\",outcome=\"model_failed\"} 2"), "{text}");
    assert!(text.contains("jitney_requests_total{deployment=\"chat\",outcome=\"cancelled\"} 0"), "{text}");
}
