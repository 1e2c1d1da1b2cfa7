//! Arrays in and out, over the socket.

use crate::support::Front;
use jitney_server::items::arrays::npy;
use jitney_server::values::tensor::{Dtype, TensorType};
use smallvec::smallvec;

#[tokio::test]
async fn arrays_go_in_and_come_out() {
    let front = Front::echo().await;
    for (path, headers, body, expected) in [
        ("open", "", "[[1, 2.5], [3e0, -4]]", "[[1.0,2.5],[3.0,-4.0]]"),
        ("open", "", "7", "7.0"),
        ("open", "", "[[], []]", "[[],[]]"),
        ("open", "", "[[1, null], [null, 2]]", "[[1.0,null],[null,2.0]]"),
        ("fixed", "", "[[1, 2], [3, 255]]", "[[1,2],[3,255]]"),
        ("fixed", "content-type: application/octet-stream\r\n", "abcd", "[[97,98],[99,100]]"),
        ("two", "", r#"{"b": [true, false], "a": [1]}"#, r#"{"a":[1.0],"b":[true,false]}"#),
        ("two", "", r#"{"a": [5, 6], "b": [true, true], "a": [1]}"#, r#"{"a":[1.0],"b":[true,true]}"#),
    ] {
        let reply = front.post(path, headers, body).await;
        assert_eq!((reply.status, reply.text()), (200, expected), "{path} {body}");
    }
}

#[tokio::test]
async fn npy_goes_in_and_comes_out() {
    let front = Front::echo().await;
    let mut file = npy::header(&TensorType { dtype: Dtype::Uint8, shape: smallvec![2, 2] });
    file.extend([1, 2, 3, 4]);
    for media in ["application/x-npy", "application/npy", "application/octet-stream"] {
        let reply =
            front.post("fixed", &format!("content-type: {media}\r\naccept: application/x-npy\r\n"), &file).await;
        assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/x-npy")));
        assert_eq!(reply.body, file);
    }
    file.pop();
    let reply = front.post("fixed", "content-type: application/x-npy\r\n", &file).await;
    assert_eq!((reply.status, reply.reason()), (400, "malformed_body"));
    let reply = front.post("two", "content-type: application/x-npy\r\n", &file).await;
    assert_eq!((reply.status, reply.reason()), (415, "unsupported_media_type"));
    // numpy could not make an empty array of such a shape.
    for (shape, status) in [
        (smallvec![0, 7], 200),
        (smallvec![0, (1 << 63) - 1], 422),
        (smallvec![1 << 40, 1 << 40], 422),
        (smallvec![1, 1 << 40, 0], 422),
    ] {
        let file = npy::header(&TensorType { dtype: Dtype::Float32, shape });
        let reply = front.post("open", "content-type: application/x-npy\r\naccept: application/x-npy\r\n", &file).await;
        assert_eq!((reply.status, reply.body == file), (status, status == 200), "{reply:?}");
    }
}

#[tokio::test]
async fn what_does_not_fit_is_named() {
    let front = Front::echo().await;
    for (path, body, status, field, says) in [
        ("fixed", "[[1, 2], [3, 256]]", 422, "$", "256"),
        ("fixed", "[[1, 2], [3, -1]]", 422, "$", "-1"),
        ("fixed", "[[1, 2], [3, 4.0]]", 422, "$", "float"),
        ("fixed", "[[1, 2], [3, true]]", 422, "$", "bool"),
        ("fixed", "[[1, 2], [3]]", 422, "$", "2 and 1"),
        ("fixed", "[[1, 2], 3]", 422, "$", "next to"),
        ("fixed", "[1, 2]", 422, "$", "expected uint8 of shape (2, 2), got uint8 of shape (2)"),
        ("fixed", "{}", 422, "$", "object"),
        ("fixed", "[[1, 2], [3, \"x\"]]", 422, "$", "str"),
        ("fixed", "[[1, 2], [3, 4]", 400, "", "JSON"),
        ("fixed", "[[1, 2], [3, 4]] 5", 400, "", "JSON"),
        ("open", "[NaN]", 400, "", "it has no NaN and no infinities (line 1 column 2); in lists of floats send null"),
        ("open", "[[1],\n [-Infinity]]", 400, "", "no infinities (line 2"),
        ("two", r#"{"a": [1, nan], "b": [true, true]}"#, 400, "", "send null for NaN"),
        ("open", "[1, nix]", 400, "", "not valid JSON: expected ident"),
        ("open", "[1e39]", 422, "$", "out of range"),
        ("open", "null", 422, "$", "null"),
        ("fixed", "[[1, 2], [3, null]]", 422, "$", "null"),
        ("two", r#"{"a": null, "b": [true, true]}"#, 422, "$.a", "null"),
        ("two", r#"{"a": [1]}"#, 422, "$.b", "missing"),
        ("two", r#"{"a": [1], "c": 1}"#, 422, "$.c", "a, b"),
        ("two", r#"{"a": [1], "b": [true]}"#, 422, "$.b", "bool of shape (2)"),
        ("two", "[1]", 422, "$", "expected an object"),
    ] {
        let reply = front.post(path, "", body).await;
        let problem = reply.json();
        assert_eq!((reply.status, problem["field"].as_str().unwrap_or("")), (status, field), "{body} {problem}");
        assert!(problem["detail"].as_str().unwrap().contains(says), "{problem}");
    }
    let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
    for path in ["open", "grouped"] {
        let reply = front.post(path, "", &deep).await;
        assert!([400, 422].contains(&reply.status), "{reply:?}");
    }
    let deep = format!("{{\"x\": {deep}}}");
    assert_eq!(front.post("grouped", "", &deep).await.status, 400);
    let packed = vec![0x91; 50_000];
    assert!([400, 422].contains(&front.post("open", "content-type: application/msgpack\r\n", &packed).await.status));
    assert_eq!(front.post("grouped", "content-type: application/msgpack\r\n", &packed).await.status, 400);
    front.assert_well().await;
}
