"""`jitney bench`: what to send, to whom, and what to say of it. The load itself is made in Rust."""
