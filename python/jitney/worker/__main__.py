"""`python -m jitney.worker`: how the front starts a worker. What it must know is in JITNEY_WORKER_SPEC."""

from jitney.worker.process import end_process, main

if __name__ == "__main__":
    end_process(main())
