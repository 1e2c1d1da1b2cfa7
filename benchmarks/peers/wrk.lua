-- wrk posts the bodies of a file in turn: lines of JSON, or the whole file if its type is bytes.
-- Arguments: file, content type, more headers as "Name: value". The closing line is JSON for generator.py.
local bodies, turn = {}, 0

function init(arguments)
  wrk.method = "POST"
  wrk.headers["content-type"] = arguments[2]
  for index = 3, #arguments do
    local name, value = arguments[index]:match("^(.-): (.*)$")
    wrk.headers[name] = value
  end
  if arguments[2] == "application/octet-stream" then
    local file = assert(io.open(arguments[1], "rb"))
    bodies[1] = wrk.format(nil, nil, nil, file:read("*a"))
    file:close()
  else
    for line in io.lines(arguments[1]) do
      bodies[#bodies + 1] = wrk.format(nil, nil, nil, line)
    end
  end
end

function request()
  turn = turn % #bodies + 1
  return bodies[turn]
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '{"requests": %d, "duration_s": %f, "p50_ms": %f, "p95_ms": %f, "p99_ms": %f, "refused": %d, "broken": %d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(95) / 1e3,
    latency:percentile(99) / 1e3, errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
