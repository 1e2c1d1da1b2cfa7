//! Stands in for `python -m jitney.worker` in the tests of the supervisor: its target says what it does.
//!
//! The target is JSON: the manifest that it sends, and what each of its workers does, by the number of the worker (the
//! last one goes for all that follow). A target that is not JSON names a file with it.
#![allow(clippy::unwrap_used, reason = "a worker of a test may panic")]

use jitney_core::request::ItemId;
use jitney_server::link::batch_end::{BatchEnd, Durations};
use jitney_server::link::frame::kind::Kind;
use jitney_server::link::results_frame::ResultsWriter;
use jitney_server::link::worker::inbox::Control;
use jitney_server::link::worker::lease::Identity;
use jitney_server::link::worker::link::WorkerLink;
use serde_json::Value;

fn main() {
    let spec: Value = serde_json::from_str(&std::env::var("JITNEY_WORKER_SPEC").unwrap()).unwrap();
    let target = spec["target"].as_str().unwrap();
    let target: Value = serde_json::from_str(target)
        .unwrap_or_else(|_| serde_json::from_slice(&std::fs::read(target).unwrap()).unwrap());
    let worker = spec["worker"].as_u64().unwrap();
    let does = target["does"].as_array().unwrap();
    let does = does[(worker as usize).min(does.len() - 1)].as_str().unwrap();
    if does == "say nothing" {
        return hang();
    }
    let (address, token) = (spec["address"].as_str().unwrap(), spec["token"].as_str().unwrap());
    let id = spec["id"].as_str().unwrap_or_default().into();
    let identity = Identity { id, token: token.into(), ..Identity::default() };
    let link = WorkerLink::connect(address, identity, || std::process::exit(9)).unwrap();
    if does == "fail" {
        let said = serde_json::json!({"stage": "importing", "error": "no module named x"}).to_string();
        link.control(Kind::Failed, said.as_bytes()).unwrap();
        std::process::exit(1);
    }
    let mut manifest = target["manifest"].clone();
    if does == "say something else" {
        manifest["deployments"][0]["input"]["kind"] = "bytes".into();
    }
    link.control(Kind::Manifest, manifest.to_string().as_bytes()).unwrap();
    if does == "die after the manifest" {
        std::process::exit(4);
    }
    if link.receive() == Control::Shutdown {
        return;
    }
    match does {
        "die while loading" => std::process::exit(3),
        "load without end" => return hang(),
        _ => link.control(Kind::Ready, b"{}").unwrap(),
    }
    while let Some(delivered) = link.next_batch() {
        link.started(delivered.batch.id).unwrap();
        if does == "die before an answer" {
            std::process::exit(6);
        }
        if does == "never answer" {
            return hang();
        }
        let ids: Vec<ItemId> = delivered.batch.items.iter().map(|item| item.id).collect();
        let batch = delivered.batch.id;
        let mut table = ResultsWriter::new(batch, std::time::Duration::ZERO, ids.len());
        let text = worker.to_string();
        for id in &ids {
            table.values(*id, 0, 1);
            table.value("", jitney_server::values::tensor::Tag::Text, None, "", text.len());
        }
        let (head, values) = (table.finish(), text.repeat(ids.len()));
        let end = BatchEnd { batch, durations: Durations::default(), is_clean: true, is_out_of_memory: false };
        link.finish(ids.into_iter(), &[&head, values.as_bytes()], &end).unwrap();
        if does == "die after an answer" {
            std::process::exit(5);
        }
    }
}

/// Hears nothing. Not without end, in case that the test ends without a kill.
fn hang() {
    std::thread::sleep(std::time::Duration::from_secs(30));
}
