"use strict";
// Draws a diagnosis from the values that stand in the page: the verdict, what to do, then every finding with its
// sentence, its picture and its numbers.
(() => {
  const values = JSON.parse(document.getElementById("values").textContent);
  const { make, css, escaped, table, chart, base, axis, heat, attach, redraw, charts } = drawing(() => false);
  const GRADES = { none: "not found", mild: "mild", strong: "strong", unknown: "cannot be told" };
  const write = (v) => v === null || v === undefined ? "–" : Number.isInteger(v) ? String(v) : Number(v.toPrecision(4)).toString();
  const words = (name) => name.replaceAll("_", " ");
  const box = (label, text, big) => text ? make("div", {}, make("p", { class: "label" }, label), make("p", { class: big ? "big" : "" }, text)) : null;
  const cells = (rows) => rows.flatMap((row, y) => row.map((value, x) => [x, y, value]));

  // ---- pictures, by kind ---------------------------------------------------------------------------------------
  const bars = (names, series) => ({ ...base(), grid: { left: 12, right: 16, top: series.length > 1 ? 44 : 20, bottom: 60, containLabel: true },
    legend: series.length > 1 ? { top: 0, textStyle: { color: css("--ink") } } : undefined,
    xAxis: axis("", { type: "category", data: names, axisLabel: { color: css("--quiet"), rotate: names.length > 8 ? 45 : 0, width: 90, overflow: "truncate" } }),
    yAxis: axis("", { type: "value", minInterval: series.every(([, data]) => data.every(Number.isInteger)) ? 1 : 0 }), tooltip: { ...base().tooltip, trigger: "axis", axisPointer: { type: "shadow" } },
    dataZoom: names.length > 40 ? [{ type: "inside" }] : [],
    series: series.map(([name, data], n) => ({ type: "bar", name, data, itemStyle: { color: ["#0072B2", "#009E73", "#E69F00"][n % 3] } })) });
  const lines = (p) => {
    const scale = p.percent ? 100 : 1, names = Object.keys(p.curves);
    return { ...base(), legend: { top: 0, textStyle: { color: css("--ink") } }, xAxis: axis("round", { type: "category", data: p.curves[names[0]].map((_, i) => i + 1) }),
      yAxis: axis(p.value + (p.percent ? " %" : ""), { type: "value", scale: true, nameGap: 44 }), tooltip: { ...base().tooltip, trigger: "axis", valueFormatter: (v) => v.toPrecision(4) },
      series: names.map((name, n) => ({ type: "line", name, data: p.curves[name].map((v) => scale * v), lineStyle: { width: 2, type: n ? "dashed" : "solid" }, itemStyle: { color: ["#0072B2", "#D55E00"][n] } })) };
  };
  const KINDS = {
    heat: (p) => [chart(() => heat(p.rows, p.columns, cells(p.cells), p.names, { high: p.high }), p.caption, p.rows.length < 6)],
    bars: (p) => [chart(() => bars(p.labels, [[p.caption, p.values]]), p.caption, true)],
    pairs: (p) => [make("div", { class: "pair" }, chart(() => bars(p.labels, [["samples", p.values]]), "Samples of each class", true),
      chart(() => bars(p.labels, Object.entries(p.series)), "How many clients hold each class, and would by chance", true))],
    probe: (p) => [make("div", { class: "pair" },
      chart(() => heat(p.rows, p.columns, cells(p.cells), ["client", "client"], { low: -1, high: 1, colours: ["#D55E00", css("--chip"), "#0072B2"] }), p.caption),
      chart(() => lines(p), `${p.value} over the probe's rounds, as the samples are held and dealt at random`))],
  };
  const picture = (p) => p && KINDS[p.kind] ? [...KINDS[p.kind](p), make("p", { class: "quiet" }, `${p.caption}.`)] : [];

  // ---- sections ------------------------------------------------------------------------------------------------
  const chip = (grade) => make("p", { class: grade === "strong" ? "warning" : "quiet" }, make("strong", {}, GRADES[grade]));
  const answer = () => {
    const of = (grade) => values.findings.filter((one) => one.severity === grade).map((one) => one.title.toLowerCase()).join(", ");
    return make("div", { class: "answer" }, make("h2", {}, "The answer"),
      box("Verdict", values.suggestion.fedavg_is_enough ? "FedAvg, tuned, is enough" : "FedAvg may not be enough", true),
      box("Why", values.suggestion.verdict), box("Strong", of("strong") || "nothing"), box("Mild", of("mild") || "nothing"), box("Cannot be told", of("unknown")),
      values.note ? make("p", { class: "quiet" }, values.note) : null);
  };
  const advice = () => make("div", {}, make("p", {}, `${values.suggestion.first}.`),
    ...values.suggestion.advice.flatMap((one) => [make("h3", {}, one.do), make("p", {}, `Because: ${one.because}.`),
      one.methods.length ? make("p", {}, "Methods: ", ...one.methods.flatMap((name, i) => [i ? ", " : "", make("code", {}, name)])) : null,
      ...Object.entries(one.refused).map(([name, why]) => make("p", { class: "quiet" }, `Not here: ${name}, as ${why}`)),
      one.settings.length || one.hint ? make("p", {}, "Settings: ", ...one.settings.flatMap((name) => [make("code", {}, name), " "]), one.hint ? `(${one.hint})` : "") : null,
      make("ul", {}, ...(one.evidence.length ? one.evidence.map((e) => make("li", { class: "quiet" }, `${e.says} (${e.page})`)) : [make("li", { class: "quiet" }, "No result of ours yet: it follows from what was measured.")]))].filter(Boolean)),
    values.command ? make("p", {}, "Next: ", make("code", {}, values.command)) : null,
    make("p", { class: "quiet" }, "Our own results are of few data sets and seeds: take them as where to begin, not as a promise."));
  const finding = (one, i) => make("div", {}, chip(one.severity), make("p", {}, one.sentence), ...picture(values.pictures[i]),
    Object.keys(one.numbers).length ? make("details", {}, make("summary", {}, "The numbers"),
      table(["what", "value"], Object.entries(one.numbers).map(([name, v]) => [words(name), write(v)]), `${one.title}: what was measured`)) : null);

  const sections = [["answer", "", answer()], ["advice", "What to do", advice()], ...values.findings.map((one, i) => [one.name, one.title, finding(one, i)])];
  document.getElementById("title").textContent = values.title;
  document.getElementById("made").textContent = `Made ${values.made} by Accord ${values.accord}; ${values.clients} clients, ${values.samples} training samples, seed ${values.seed}`;
  document.getElementById("foot").textContent = "Everything on this page is in the page: it asks nobody for anything.";
  const main = document.getElementById("main");
  main.replaceChildren(...sections.map(([id, title, node]) => make("section", { id, "aria-label": title || "The answer" }, title ? make("h2", {}, title) : null, node)));
  document.getElementById("contents").replaceChildren(...sections.filter(([, title]) => title).map(([id, title]) => make("li", {}, make("a", { href: `#${id}` }, title))));
  document.getElementById("client").remove();
  attach(main);
  redraw();
  globalThis.accord = { values, charts, escaped }; // for those who look closer, and for tests
})();
