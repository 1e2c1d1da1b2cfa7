//! Stands in for `python -m jitney.worker` in the tests of the supervisor: its target says what it does.
//!
//! The target is JSON: the manifest that it sends, and what each of its workers does, by the number of the worker (the
//! last one goes for all that follow).
#![allow(clippy::unwrap_used, reason = "a worker of a test may panic")]

use jitney_core::request::ItemId;
use jitney_server::link::frame::Kind;
use jitney_server::link::results_frame::{Durations, ResultsWriter};
use jitney_server::link::worker::{Control, WorkerLink};
use serde_json::Value;

fn main() {
    let spec: Value = serde_json::from_str(&std::env::var("JITNEY_WORKER_SPEC").unwrap()).unwrap();
    let target: Value = serde_json::from_str(spec["target"].as_str().unwrap()).unwrap();
    let worker = spec["worker"].as_u64().unwrap();
    let does = target["does"].as_array().unwrap();
    let does = does[(worker as usize).min(does.len() - 1)].as_str().unwrap();
    if does == "say nothing" {
        return hang();
    }
    let link =
        WorkerLink::connect(spec["address"].as_str().unwrap(), spec["secret"].as_str().unwrap(), worker as u32, || {
            std::process::exit(9)
        })
        .unwrap();
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
    if spec["deployment"].is_null() && link.receive() == Control::Shutdown {
        return;
    }
    match does {
        "die while loading" => std::process::exit(3),
        "load for ever" => return hang(),
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
        let mut table = ResultsWriter::new(delivered.batch.id, Durations::default(), true, ids.len());
        let text = worker.to_string();
        for id in &ids {
            table.values(*id, 1);
            table.value("", jitney_server::call::Tag::Text, None, "", text.len());
        }
        let (head, values) = (table.finish(), text.repeat(ids.len()));
        link.finish(ids.into_iter(), &[&head, values.as_bytes()]).unwrap();
        if does == "die after an answer" {
            std::process::exit(5);
        }
    }
}

/// Hears nothing. Not for ever, in case that the test ends without a kill.
fn hang() {
    std::thread::sleep(std::time::Duration::from_secs(30));
}
