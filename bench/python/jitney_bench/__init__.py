"""The load generator of `jitney bench`: loads a server with requests and reports how fast it answers.

Runs in the process of `jitney bench`, never in a server. Of jitney it uses errors, options and the check of targets.
Threads, connections and timers are Rust: `jitney_bench._generator`.
"""
