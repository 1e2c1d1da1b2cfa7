//! The OpenAI API: what of a request reaches the items of its inputs.

use crate::support::{Client, Front, f32s, post, server_options, submitted_many, timing, watched};
use jitney_core::queue::group_key::KeyPart;
use jitney_core::tables::outcome::Outcome;
use jitney_server::engine::deployment::Inbound;
use jitney_server::engine::reply::ReplySender;
use jitney_server::values::answer::{Answer, Failure};
use jitney_server::values::call::Call;
use tokio::sync::mpsc;

type Submitted = Vec<(Call, ReplySender)>;

async fn embed(client: &mut Client, messages: &mut mpsc::UnboundedReceiver<Inbound>, fields: &str) -> Submitted {
    client.write(post("v1/embeddings", "", format!("{{\"model\": \"embedder\", {fields}}}"))).await;
    submitted_many(messages).await
}

fn item(call: &Call) -> serde_json::Value {
    serde_json::from_slice(&call.parts[0].data.0.concat()).unwrap()
}

#[tokio::test]
async fn fields_that_the_model_declares_reach_every_input() {
    let (engine, mut messages) = watched();
    let front = Front::with(server_options(), engine).await;
    let mut client = front.connect().await;
    let fields =
        r#""input_type": "passage", "input": ["a", "b"], "user": "me", "dimensions": 2, "encoding_format": "float""#;
    let items = embed(&mut client, &mut messages, fields).await;
    for ((call, reply), input) in items.into_iter().zip(["a", "b"]) {
        assert_eq!(item(&call), serde_json::json!({ "input": input, "dimensions": 2, "input_type": "passage" }));
        assert_eq!(call.group.0.to_vec(), [KeyPart::from_scalar(&serde_json::from_str("\"passage\"").unwrap())]);
        let answer = [f32s(&[0.5, 0.25], &[2])].into_iter().collect();
        assert!(reply.end(Answer { result: Ok(answer), timing: timing(), tokens: Some(1), end: None }));
    }
    let answer = client.reply().await.unwrap().json();
    assert_eq!(answer["data"][1]["embedding"], serde_json::json!([0.5, 0.25]));

    let items = embed(&mut client, &mut messages, r#""input": [7, 8]"#).await;
    assert_eq!(item(&items[0].0), serde_json::json!({ "input": [7, 8] }), "what is not said is left to its default");
}

#[tokio::test]
async fn a_vector_that_json_cannot_hold_is_a_fault_of_the_model() {
    let (engine, mut messages) = watched();
    let front = Front::with(server_options(), engine).await;
    let mut client = front.connect().await;
    for (format, status) in [("float", 500), ("base64", 200)] {
        let fields = format!(r#""input": ["a", "b"], "encoding_format": "{format}""#);
        for (last, (_, reply)) in [0.5, f32::NAN].into_iter().zip(embed(&mut client, &mut messages, &fields).await) {
            let answer = [f32s(&[0.5, last], &[2])].into_iter().collect();
            assert!(reply.end(Answer { result: Ok(answer), timing: timing(), tokens: Some(1), end: None }));
        }
        let reply = client.reply().await.unwrap();
        assert_eq!(reply.status, status, "{}", reply.text());
        if status == 500 {
            let error = &reply.json()["error"];
            assert_eq!((&error["param"], &error["code"]), (&"data[1].embedding[1]".into(), &"invalid_output".into()));
        }
    }
}

#[tokio::test]
async fn clients_of_azure_are_told_where_the_route_is() {
    let front = Front::echo().await;
    let reply = front.post("openai/deployments/embedder/embeddings?api-version=1", "", "{}").await;
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (404, &"not_found".into()), "{}", reply.text());
    assert!(reply.text().contains("base URL end with /v1"), "{}", reply.text());
}

#[tokio::test]
async fn what_is_wrong_with_such_a_field_is_said_of_the_field() {
    let (engine, mut messages) = watched();
    let front = Front::with(server_options(), engine).await;
    let mut client = front.connect().await;
    for (field, param) in [("$.input_type", "input_type"), ("$.input", "input[0]"), ("$.input[3]", "input[0]")] {
        for (_, reply) in embed(&mut client, &mut messages, r#""input": ["a", "b"], "input_type": "query""#).await {
            let failure = Failure { field: Some(field.into()), ..Failure::new(Outcome::InvalidInput, "not so") };
            assert!(reply.end(Answer { result: Err(failure), timing: timing(), tokens: None, end: None }));
        }
        let reply = client.reply().await.unwrap();
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &param.into()), "{}", reply.text());
    }
    // What the front itself asks about.
    client.write(post("v1/embeddings", "", r#"{"model": "embedder", "input": "a", "input_type": 7}"#)).await;
    let reply = client.reply().await.unwrap();
    assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &"input_type".into()), "{}", reply.text());
}

#[tokio::test]
async fn a_field_that_many_inputs_would_multiply_is_refused() {
    let front = Front::echo().await;
    let (field, inputs) = ("x".repeat(10_000), vec!["a"; 200]);
    let body = serde_json::json!({ "model": "embedder", "input": inputs, "input_type": field });
    let reply = front.post("v1/embeddings", "", body.to_string()).await;
    assert_eq!(reply.status, 413, "{}", reply.text());
    assert!(reply.text().contains("send fewer inputs"), "{}", reply.text());
}

#[tokio::test]
async fn who_speaks_the_first_protocol_of_kserve_is_told_of_the_second() {
    let front = Front::echo().await;
    let reply = front.post("v1/models/text:predict", "", r#"{"instances": ["a"]}"#).await;
    assert_eq!((reply.status, reply.reason()), (404, "not_found"));
    let said = reply.text();
    assert!(said.contains("there are POST /v2/models/text/infer (v2) and POST /text"), "{said}");
}
