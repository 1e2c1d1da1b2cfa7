-- wrk posts one constant body; the closing line is JSON for run.py.
-- Arguments: content type, then the body, or its size in bytes as `size:N`.
function init(arguments)
  local body = arguments[2]
  local size = body:match("^size:(%d+)$")
  wrk.method = "POST"
  wrk.headers["content-type"] = arguments[1]
  wrk.body = size and string.rep("x", tonumber(size)) or body
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '{"requests": %d, "duration_s": %f, "p50_ms": %f, "p99_ms": %f, "refused": %d, "broken": %d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
