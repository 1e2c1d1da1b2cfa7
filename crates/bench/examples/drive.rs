//! Measures the generator itself: `drive PORT USERS SECONDS` loads the server at PORT as fast as one thread can, and says
//! how many requests that makes per second of the thread's CPU time. Design note 0011 has a figure.

use jitney_bench::motion::{Input, run};
use jitney_bench::rules::plan::{Load, Plan};
use std::error::Error;
use std::io::Write;
use std::ops::ControlFlow;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [port, users, seconds] = arguments.as_slice() else { return Err("drive PORT USERS SECONDS".into()) };
    let plan = Plan {
        host: "127.0.0.1".into(),
        port: port.parse()?,
        path: "/".into(),
        headers: Vec::new(),
        items_per_request: 1,
        stream: None,
        load: Load::Closed { users: users.parse()?, ramp_s: 0.0, think_s: (0.0, 0.0) },
        warmup_s: 1.0,
        duration_s: seconds.parse()?,
        timeout_s: 10.0,
        interval_s: 0.5,
        threads: 1,
        seed: 1,
    };
    plan.check()?;
    let body = br#"{"text": "a body of fifty-seven characters, as every server here gets"}"#;
    let input = Input { content_type: "application/json".into(), body: body.to_vec() };
    let done = run(plan, &[input], |_: Option<&_>| ControlFlow::Continue(()))?.ok_or("broken off")?;
    let told = serde_json::to_value(done)?;
    let number = |value: &serde_json::Value| value.as_f64().unwrap_or(f64::NAN);
    let (rate, client) = (number(&told["rate_per_s"]), &told["client"]);
    let (cpu, waited) = (number(&client["cpu"]), number(&client["waited"]));
    let (per_core, failed) = (rate / cpu, &told["requests"]["failed"]);
    writeln!(
        std::io::stdout(),
        "{rate:.0} answers/s with {cpu:.2} of a core, which it waited for {waited:.2} of the time: {per_core:.0} per core and \
         second; {failed} failed"
    )?;
    Ok(())
}
