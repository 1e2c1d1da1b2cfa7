// Draws the document of this page. Colours are told apart by people who see few of them, and legends name every line.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
  const main = document.getElementById("plots");
  const digits = (value) => (value == null ? "–" : value.toLocaleString("en", { maximumSignificantDigits: 4 }));

  // The places of values without a neighbour, which no line would show.
  function lonely(values) {
    const places = values.map((_, place) => place);
    return places.filter((place) => values[place] != null && values[place - 1] == null && values[place + 1] == null);
  }

  function plot(title, note, axis, unit, lines, options = {}) {
    const figure = document.createElement("figure");
    figure.innerHTML = "<h2></h2><figcaption></figcaption>";
    figure.firstChild.textContent = title;
    figure.lastChild.textContent = note;
    main.append(figure);
    const width = Math.max(320, figure.clientWidth);
    const shown = (_, value) => digits(value);
    const series = lines.map((line, place) => ({
      label: line.label, stroke: COLOURS[place % COLOURS.length], width: 2, value: shown, spanGaps: options.spanGaps ?? false,
      fill: line.isBar ? COLOURS[place % COLOURS.length] + "66" : undefined,
      paths: line.isBar ? uPlot.paths.bars({ size: [0.7, 60] }) : undefined,
      points: { show: line.hasPoints ?? false, size: line.size ?? (line.hasPoints ? 7 : 4), filter: (_, __, show) => (show || options.spanGaps ? null : lonely(line.y)) },
    }));
    new uPlot({
      width, height: 260, legend: { live: true },
      scales: { x: { time: false, distr: options.xDistr ?? 1, range: options.xRange }, y: { range: (_, least, most) => [0, (most || 1) * 1.08] } },
      axes: [
        { label: axis, values: options.names ?? ((_, values) => values.map(digits)), splits: options.splits, filter: (_, splits) => splits },
        { label: unit, values: (_, values) => values.map(digits), size: 64 },
      ],
      series: [{ label: axis, value: options.name ?? shown }, ...series],
    }, [options.x ?? lines[0].x, ...lines.map((line) => line.y)], figure);
  }

  function bars(title, note, axis, unit, counts) {
    const names = Object.keys(counts), x = names.map((_, place) => place);
    plot(title, note, axis, unit, [{ label: unit, y: names.map((name) => counts[name]), isBar: true }], {
      x, splits: () => x, names: (_, values) => values.map((value) => names[value] ?? ""),
      name: (_, value) => names[value] ?? "", xRange: () => [-0.6, names.length - 0.4],
    });
  }

  // Lines over different x become one table, as the plot wants it.
  function join(lines) {
    return uPlot.join(lines.map((line) => [line.x, line.y]));
  }

  function percentiles(runs, names) {
    const curves = (has, curve) => runs.map((run, place) => ({ label: names[place], points: has(run) ? curve(run) : [] }));
    byPercentile("Latency by percentile", "so many of all answers came within this time", curves((run) => run.latency_ms, (run) => run.latency_curve));
    byPercentile("First part by percentile", "so many of all answers had their first part within this time", curves((run) => run.parts?.first_ms, (run) => run.parts.first_curve));
    byPercentile("Gaps between parts by percentile", "so many of all parts came within this time of the part before", curves((run) => run.parts?.gap_ms, (run) => run.parts.gap_curve));
  }

  function byPercentile(title, note, curves) {
    const lines = curves.filter(({ points }) => points.length > 0).map(({ label, points }) => {
      const curve = points.filter(([share]) => share < 1);
      return { label, x: curve.map(([share]) => 1 / (1 - share)), y: curve.map(([, ms]) => ms) };
    });
    if (lines.length === 0) return;
    const [x, ...ys] = join(lines);
    lines.forEach((line, place) => { line.y = ys[place].map((value) => value ?? null); });
    const name = (value) => `${digits(100 * (1 - 1 / value))} %`;
    const splits = [1, 2, 10, 100, 1000, 10000, 100000].filter((value) => value <= x[x.length - 1]);
    plot(title, note, "percentile", "ms", lines, {
      x, xDistr: 3, spanGaps: true, splits: () => splits, names: (_, values) => values.map(name), name: (_, value) => (value == null ? "–" : name(value)),
    });
  }

  function overTime(run, label) {
    const x = run.series.map((point) => (point.from_s + point.to_s) / 2);
    const line = (label, read) => ({ label, y: run.series.map(read) });
    const rate = (name) => (point) => point[name] / (point.to_s - point.from_s);
    plot(`Latency over time${label}`, "of what was answered in each interval", "s", "ms",
      [line("p50", (point) => point.p50_ms), line("p95", (point) => point.p95_ms), line("p99", (point) => point.p99_ms)], { x });
    plot(`Throughput over time${label}`, "requests that were due, and how they ended", "s", "requests/s",
      [line("due", rate("due")), line("answered", rate("answered")), line("refused", rate("refused")), line("failed", rate("failed"))], { x });
    if (run.parts) {
      const quantiles = (of) => ["p50", "p95", "p99"].map((name) => line(name, (point) => point[`${of}_${name}_ms`]));
      plot(`First part over time${label}`, "from the due instant to the first part, of what was answered in each interval", "s", "ms", quantiles("first"), { x });
      plot(`Gaps between parts over time${label}`, "of the parts that came in each interval; parts that came together have gaps of 0", "s", "ms", quantiles("gap"), { x });
      plot(`Parts over time${label}`, "parts that came, of all streams together", "s", "parts/s", [line("parts", (point) => point.parts_per_s)], { x });
    }
    if (run.server_ms) {
      const then = run.server_ms.model ? "in the model" : "from there to the first part";
      plot(`Time in the server${label}`, `means of each interval: waiting for a batch, and ${then}`, "s", "ms",
        [line("queue", (point) => point.queue_mean_ms), line(run.server_ms.model ? "model" : "first part", (point) => point.model_mean_ms)], { x });
    }
    plot(`The client's own core${label}`, "near 1 the client is what was measured", "s", "share of a core",
      [line("computed", (point) => point.client_cpu), line("waited for a core", (point) => point.client_waited)], { x });
  }

  function load(runs) {
    percentiles(runs, runs.map((_, place) => `run ${place + 1}`));
    runs.forEach((run, place) => {
      const label = runs.length > 1 ? `, run ${place + 1}` : "";
      overTime(run, label);
      if (run.batch_sizes) bars(`Batch sizes${label}`, "requests by the size of the batch that they rode in", "items", "requests", run.batch_sizes);
      if (run.closed_by) bars(`Why batches closed${label}`, "by the server's own count", "reason", "batches", run.closed_by);
    });
  }

  function sweep(points) {
    const answered = points.map((point, place) => ({ ...point, place })).filter((point) => point.run.latency_ms);
    // Past its limit a server answers less again: in the order of load the line would run backwards.
    const rates = [...answered].sort((one, other) => one.run.rate_per_s - other.run.rate_per_s);
    const knee = rates.map((point) => (point.place === data.knee ? point.run.latency_ms.p99 : null));
    const of = (name) => rates.map((point) => point.run.latency_ms[name]);
    plot("p99 against throughput", "each point is one load; the knee has the most answers per second for its p99", "answers/s", "ms",
      [{ label: "p99", y: of("p99"), hasPoints: true }, { label: "p50", y: of("p50"), hasPoints: true }, { label: "knee", y: knee, hasPoints: true, size: 15 }],
      { x: rates.map((point) => point.run.rate_per_s) });
    const loads = Object.fromEntries(points.map((point) => [point.label, point.run.rate_per_s]));
    bars("Throughput by load", "", "load", "answers/s", loads);
    const busy = points.filter((point) => point.run.server.model_busy != null);
    if (busy.length > 0) bars("How busy the model was", "share of the time, over all replicas", "load", "share", Object.fromEntries(busy.map((point) => [point.label, point.run.server.model_busy])));
  }

  function compare(sides) {
    const runs = sides.flatMap((side, place) => side.runs.map((run, number) => ({ run, name: `${"AB"[place]}${number + 1}` })));
    percentiles(runs.map(({ run }) => run), runs.map(({ name }) => name));
    const of = (read) => Object.fromEntries(runs.map(({ run, name }) => [name, read(run)]));
    bars("Throughput by run", "A is the first file, B the second", "run", "answers/s", of((run) => run.rate_per_s));
    bars("p99 by run", "", "run", "ms", of((run) => run.latency_ms?.p99 ?? null));
  }

  if (data.kind === "sweep") sweep(data.points);
  else if (data.kind === "compare") compare(data.sides);
  else load(data.runs);
})();
