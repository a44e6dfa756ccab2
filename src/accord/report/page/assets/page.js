"use strict";
// Draws a page of runs from the values that stand in it. Sections are made in the order of `SECTIONS`; each gives its
// heading and fills itself, and is left out where there is nothing to show.
(() => {
  let values = JSON.parse(document.getElementById("values").textContent);
  const chosen = { x: "rounds", y: "", run: 0, zoom: [0, 100], sort: ["", 1], filter: "" };

  const { make, css, escaped, table, chart, base, axis, heat, attach, redraw, charts } = drawing(() => values.live);

  // ---- small helpers -------------------------------------------------------------------------------------------
  const percent = () => values.judged.percent;
  const isShare = (name) => percent() && (name === values.judged.key || /(^|\/)(best|worst|mean|std|weighted_mean)$/.test(name)
    || /accuracy|ece|f1/.test(name)) && !/loss|drift|bytes/.test(name);
  const write = (name, v) => v === null || v === undefined ? "–"
    : isShare(name) ? `${(100 * v).toFixed(2)} %` : Number.isInteger(v) ? String(v) : Number(v.toPrecision(4)).toString();
  const bytes = (n) => n >= 1e9 ? `${(n / 1e9).toFixed(2)} GB` : n >= 1e6 ? `${(n / 1e6).toFixed(1)} MB` : `${(n / 1e3).toFixed(0)} kB`;
  const words = (name) => name.replace("clients/", "client: ").replace("personal/", "personal: ").replaceAll("_", " ").replaceAll("/", ": ");
  const labels = () => [...new Set(values.runs.map((run) => run.label))];
  const dash = (line) => ({ "-": "solid", "--": "dashed", ":": "dotted", "-.": [8, 3, 2, 3] })[line] || "solid";
  const colour = (label) => {
    const given = values.looks[label]?.colour || "#0072B2";
    return given === "#000000" ? css("--ink") : given; // black vanishes on a dark page
  };
  const mean = (numbers) => numbers.reduce((a, b) => a + b, 0) / numbers.length;
  const deviation = (numbers) => {
    if (numbers.length < 2) return 0;
    const m = mean(numbers);
    return Math.sqrt(numbers.reduce((a, b) => a + (b - m) ** 2, 0) / (numbers.length - 1));
  };

  const select = (name, options, value, change) => make("label", {}, name, make("select", { onchange: (event) => change(event.target.value) },
    ...options.map(([key, text]) => make("option", { value: key, selected: key === String(value) }, text))));
  const numbers = (titles, rows, caption) => make("details", {}, make("summary", {}, "The numbers"), table(titles, rows, caption));

  // ---- the first screen ----------------------------------------------------------------------------------------
  const answer = () => {
    const a = values.answer;
    const many = labels().length > 1;
    const box = (label, text, big) => text ? make("div", {}, make("p", { class: "label" }, label), make("p", { class: big ? "big" : "" }, text)) : null;
    const going = values.runs.filter((run) => !run.finished);
    return make("div", { class: "answer" },
      make("h2", {}, "The answer"),
      box(many ? "Best method" : "Method", a.best, true), box("How good", a.number, true), box("How sure", a.sure), box("Who is served worst", a.worst),
      ...a.warnings.map((text) => make("p", { class: "warning" }, text)),
      ...going.slice(0, 12).map((run) => make("div", {}, make("p", { class: "label" }, `${run.label}, seed ${run.seed}: round ${run.done} of ${run.of}`),
        make("progress", { max: run.of, value: run.done, "aria-label": `${run.label}, seed ${run.seed}` }))));
  };

  const methods = () => {
    if (!values.table.rows.length) return null;
    const parts = [table(values.table.titles, values.table.rows, values.table.remark)];
    if (values.apart) {
      const apart = values.apart;
      parts.push(make("h3", {}, apart.title), table(apart.titles, apart.rows, apart.remark));
      if (apart.bars.some((bar) => bar.low !== null)) parts.push(chart(() => intervals(apart.bars), `${apart.title}: intervals`, true));
    }
    return make("div", {}, ...parts);
  };
  const intervals = (bars) => {
    const scale = percent() ? 100 : 1;
    const known = bars.filter((bar) => bar.low !== null);
    return { ...base(), grid: { left: 10, right: 30, top: 20, bottom: 50, containLabel: true },
      xAxis: axis(percent() ? "points" : "difference", { type: "value", scale: true }),
      yAxis: axis("", { type: "category", data: known.map((bar) => bar.label), inverse: true }),
      tooltip: { ...base().tooltip, trigger: "item" },
      series: [
        { type: "custom", data: known.map((bar, i) => [scale * bar.low, scale * bar.high, i]), renderItem: (_, api) => {
          const from = api.coord([api.value(0), api.value(2)]), to = api.coord([api.value(1), api.value(2)]);
          const style = { stroke: colour(known[api.value(2)].label), lineWidth: 3 };
          return { type: "group", children: [{ type: "line", shape: { x1: from[0], y1: from[1], x2: to[0], y2: to[1] }, style }] };
        }, encode: { x: [0, 1], y: 2 }, tooltip: { formatter: (p) => `${p.value[0].toFixed(2)} to ${p.value[1].toFixed(2)}` } },
        { type: "scatter", symbolSize: 11, data: known.map((bar, i) => ({ value: [scale * bar.mean, i], itemStyle: { color: colour(bar.label) } })),
          markLine: { silent: true, symbol: "none", lineStyle: { color: css("--quiet") }, label: { show: false }, data: [{ xAxis: 0 }] } },
      ] };
  };

  // ---- over rounds, seconds and bytes --------------------------------------------------------------------------
  const measures = () => [...new Set(values.runs.flatMap((run) => Object.keys(run.values)))];
  const preferred = () => {
    const order = values.judged.personal ? ["personal/mean", values.judged.key] : [values.judged.key, "personal/mean"];
    return order.find((name) => measures().includes(name)) || measures()[0] || "";
  };
  // Runs of one label meet at the same round; over seconds and bytes the mean of those is where the point lies.
  const curve = (label, y, x) => {
    const runs = values.runs.filter((run) => run.label === label && run.values[y]);
    const points = new Map();
    for (const run of runs) run.rounds.forEach((round, i) => {
      const value = run.values[y][i];
      if (value === null) return;
      if (!points.has(round)) points.set(round, { at: [], value: [] });
      const place = { rounds: round, seconds: run.seconds[i], bytes: run.sent[i] / 1e6, clock: run.values.clock?.[i] }[x];
      if (place === undefined || place === null) return;
      points.get(round).at.push(place);
      points.get(round).value.push(value);
    });
    const most = Math.max(0, ...[...points.values()].map((p) => p.value.length));
    return [...points].sort((a, b) => a[0] - b[0]).filter(([, p]) => p.value.length === most || x === "rounds")
      .filter(([, p]) => p.value.length).map(([round, p]) => ({ round, x: mean(p.at), y: mean(p.value), spread: deviation(p.value), runs: p.value.length }));
  };
  const AXES = { rounds: "round", seconds: "seconds", bytes: "megabytes sent", clock: "seconds of the simulated clock" };
  const curves = () => {
    const y = chosen.y || preferred(), scale = isShare(y) ? 100 : 1, series = [];
    for (const label of labels()) {
      const points = curve(label, y, chosen.x);
      if (!points.length) continue;
      const tint = colour(label);
      if (points.some((p) => p.spread > 0)) {
        const band = { type: "line", showSymbol: false, silent: true, lineStyle: { opacity: 0 }, itemStyle: { color: tint }, stack: `band ${label}`, stackStrategy: "all", tooltip: { show: false } };
        series.push({ ...band, name: label, data: points.map((p) => [p.x, scale * (p.y - p.spread)]) },
          { ...band, name: label, areaStyle: { color: tint, opacity: 0.16 }, data: points.map((p) => [p.x, 2 * scale * p.spread]) });
      }
      series.push({ type: "line", name: label, showSymbol: points.length < 2, symbolSize: 7, lineStyle: { width: 2, color: tint, type: dash(values.looks[label]?.line) },
        itemStyle: { color: tint }, emphasis: { focus: "series" }, data: points.map((p) => ({ value: [p.x, scale * p.y], point: p })) });
    }
    return { ...base(), grid: { ...base().grid, top: labels().length > 6 ? 90 : 48, bottom: 96 },
      legend: { type: "scroll", top: 0, textStyle: { color: css("--ink") }, data: labels() },
      xAxis: axis(AXES[chosen.x], { type: "value", min: "dataMin", max: "dataMax", minInterval: chosen.x === "rounds" ? 1 : 0 }),
      yAxis: axis(words(y) + (scale === 100 ? " %" : ""), { type: "value", scale: true, nameGap: 44 }),
      dataZoom: [{ type: "inside", filterMode: "none", start: chosen.zoom[0], end: chosen.zoom[1] },
        { type: "slider", bottom: 12, height: 26, filterMode: "none", start: chosen.zoom[0], end: chosen.zoom[1], borderColor: css("--rule"),
          textStyle: { color: css("--quiet") } }],
      tooltip: { ...base().tooltip, trigger: "axis", order: "valueDesc", formatter: (items) => {
        const lines = items.filter((item) => item.data.point).map((item) => {
          const p = item.data.point;
          return `${item.marker}${escaped(item.seriesName)}: ${write(y, p.y)}${p.spread ? ` ± ${write(y, p.spread)}` : ""}`;
        });
        const first = items.find((item) => item.data.point)?.data.point;
        return first ? `round ${first.round}<br>${lines.join("<br>")}` : "";
      } },
      series };
  };
  const rounds = () => {
    if (!measures().length) return null;
    const node = chart(curves, "The chosen number over rounds, seconds or bytes: a line per method, a band of one deviation over seeds");
    const zoom = (from, to) => { chosen.zoom = [Math.max(0, from), Math.min(100, to)]; redraw(); };
    const width = () => chosen.zoom[1] - chosen.zoom[0];
    const ways = Object.keys(AXES).filter((x) => x !== "clock" || measures().includes("clock"));
    const y = chosen.y || preferred();
    return make("div", {},
      make("div", { class: "controls" },
        select("What", measures().map((name) => [name, words(name)]), y, (to) => { chosen.y = to; redraw(); }),
        select("Over", ways.map((x) => [x, AXES[x]]), chosen.x, (to) => { chosen.x = to; chosen.zoom = [0, 100]; redraw(); }),
        make("button", { type: "button", onclick: () => zoom(chosen.zoom[0] + width() / 4, chosen.zoom[1] - width() / 4) }, "Zoom in"),
        make("button", { type: "button", onclick: () => zoom(chosen.zoom[0] - width() / 2, chosen.zoom[1] + width() / 2) }, "Zoom out"),
        make("button", { type: "button", onclick: () => zoom(0, 100) }, "All")),
      node,
      numbers(["method", "round", words(y), "± over seeds", "runs"], labels().flatMap((label) => {
        const last = curve(label, y, "rounds").at(-1);
        return last ? [[label, last.round, write(y, last.y), write(y, last.spread), last.runs]] : [];
      }), `The last round of each method: ${words(y)}`));
  };

  // ---- fairness ------------------------------------------------------------------------------------------------
  const siteKeys = () => {
    const found = [...new Set(values.runs.flatMap((run) => Object.keys(run.sites)))];
    const key = values.judged.key;
    return [key, `personal_${key}`].filter((name) => found.includes(name)).concat(found.filter((name) => name !== key && name !== `personal_${key}`));
  };
  const sorted = (label, key) => {
    const runs = values.runs.filter((run) => run.label === label && run.sites[key]).map((run) => run.sites[key].filter((v) => v !== null).sort((a, b) => a - b));
    const count = Math.min(...runs.map((run) => run.length));
    if (!runs.length || !count) return [];
    // Seeds have other divisions, so clients are met by their place in the order; long federations are drawn by 200 places.
    const places = Array.from({ length: Math.min(count, 200) }, (_, i) => i / Math.max(1, Math.min(count, 200) - 1));
    return places.map((share) => [100 * share, mean(runs.map((run) => run[Math.round(share * (run.length - 1))]))]);
  };
  const fairness = () => {
    const keys = siteKeys();
    if (!keys.length) return null;
    let key = keys[0];
    const options = () => {
      const scale = isShare(key) ? 100 : 1;
      return { ...base(), grid: { ...base().grid, bottom: 64 }, legend: { type: "scroll", top: 0, textStyle: { color: css("--ink") } },
        xAxis: axis("clients, worst first, % of all", { type: "value", min: 0, max: 100, inverse: !values.judged.higher }),
        yAxis: axis(words(key) + (scale === 100 ? " %" : ""), { type: "value", scale: true, nameGap: 44 }),
        tooltip: { ...base().tooltip, trigger: "axis", valueFormatter: (v) => scale === 100 ? `${v.toFixed(2)} %` : v.toPrecision(4) },
        series: labels().map((label) => ({ type: "line", name: label, showSymbol: false, itemStyle: { color: colour(label) },
          lineStyle: { width: 2, color: colour(label), type: dash(values.looks[label]?.line) }, data: sorted(label, key).map(([x, y]) => [x, scale * y]) })) };
    };
    const deciles = () => labels().flatMap((label) => {
      const points = sorted(label, key).map(([, y]) => y);
      if (!points.length) return [];
      const at = (share) => write(key, points[Math.round(share * (points.length - 1))]);
      return [[label, at(0), at(0.1), at(0.25), at(0.5), at(0.75), at(0.9), at(1), write(key, deviation(points))]];
    });
    const titles = ["method", "lowest", "10 %", "25 %", "median", "75 %", "90 %", "highest", "deviation"];
    const holder = make("div", {}, table(titles, deciles(), `Sites in order: ${words(key)}, mean over seeds`));
    const change = (to) => { key = to; redraw(); holder.replaceChildren(table(titles, deciles(), `Sites in order: ${words(key)}, mean over seeds`)); };
    return make("div", {}, make("div", { class: "controls" }, select("What", keys.map((name) => [name, words(name)]), key, change)),
      chart(options, "Every site's number, in order, a line per method: a flat line is fair"), holder);
  };

  // ---- sites ---------------------------------------------------------------------------------------------------
  const run = () => values.runs[chosen.run] || values.runs[0];
  const division = () => values.divisions[run().division];
  const detailed = () => values.runs.map((one, i) => [i, one]).filter(([, one]) => one.command);
  const parts = () => {
    const d = division();
    if (!d || !d.classes.length) return null;
    const cells = d.counts.flatMap((row, y) => row.map((count, x) => [x, y, count]).filter((cell) => cell[2]));
    return make("div", {}, make("p", { class: "quiet" }, `Training samples of ${d.site.length} sites by class; ${run().label}, seed ${run().seed}.`),
      chart(() => heat(d.site, d.classes, cells, ["class", "site"]), "Training samples by site and class"));
  };
  const sites = () => {
    const d = division(), one = run();
    if (!d) return null;
    const keys = Object.keys(one.sites);
    const titles = ["site", "samples", "test samples", "largest class", ...keys.map(words)];
    const holder = make("div", {});
    const value = (i, column) => column === 0 ? d.site[i] : column === 1 ? d.samples[i] : column === 2 ? d.test_samples[i] : column === 3 ? d.class[i] : one.sites[keys[column - 4]][i];
    const show = () => {
      const [by, way] = chosen.sort;
      const column = by === "" ? (keys.length ? 4 : 1) : Number(by);
      const wanted = chosen.filter.toLowerCase();
      const order = d.site.map((_, i) => i).filter((i) => d.site[i].toLowerCase().includes(wanted));
      order.sort((a, b) => {
        const x = value(a, column), y = value(b, column);
        if (x === null || y === null) return (x === null) - (y === null);
        return way * (typeof x === "string" ? x.localeCompare(y, undefined, { numeric: true }) : x - y);
      });
      const body = order.slice(0, 1000).map((i) => make("tr", {},
        make("td", {}, make("button", { type: "button", onclick: () => client(i) }, d.site[i])), make("td", {}, String(d.samples[i])), make("td", {}, String(d.test_samples[i])),
        make("td", {}, d.class[i] || "–"), ...keys.map((key) => make("td", {}, write(key, one.sites[key][i])))));
      holder.replaceChildren(make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Sites" }, make("table", {},
        make("caption", {}, `${order.length} sites; a name opens the site`),
        make("thead", {}, make("tr", {}, ...titles.map((title, i) => make("th", { scope: "col", "aria-sort": i === column ? (way > 0 ? "ascending" : "descending") : "none" },
          make("button", { type: "button", onclick: () => { chosen.sort = [String(i), i === column ? -way : 1]; show(); } }, title))))), make("tbody", {}, ...body))));
    };
    show();
    return make("div", {}, make("div", { class: "controls" }, select("Run", values.runs.map((r, i) => [String(i), `${r.label}, seed ${r.seed}`]), chosen.run, (to) => { chosen.run = Number(to); build(); location.hash = "sites"; }),
      make("label", {}, "Find a site", make("input", { type: "search", value: chosen.filter, oninput: (event) => { chosen.filter = event.target.value; show(); } }))), holder);
  };
  const client = (i) => {
    const d = division(), dialog = document.getElementById("client"), key = siteKeys()[0];
    const same = values.runs.filter((one) => one.division === run().division && Object.keys(one.sites).length);
    const over = detailed().filter(([, one]) => one.clients && one.division === run().division);
    const drifts = detailed().filter(([, one]) => one.drift && one.division === run().division);
    const columns = [...new Set(same.flatMap((one) => Object.keys(one.sites)))];
    const pictures = [];
    if (d.classes.length) pictures.push(make("div", {}, make("h3", {}, "Its classes"), chart(() => ({ ...base(), xAxis: axis("class", { type: "category", data: d.classes }),
      yAxis: axis("", { type: "value" }), tooltip: { ...base().tooltip, trigger: "axis" }, series: [{ type: "bar", itemStyle: { color: "#0072B2" }, data: d.counts[i] }] }), "Training samples by class", true)));
    if (over.length) pictures.push(make("div", {}, make("h3", {}, `${values.judged.title} over rounds`), chart(() => lines(over.map(([, one]) => [one.label, one.clients.rounds.map((r, n) =>
      [r, one.clients.values[n][i] === null ? null : (percent() ? 100 : 1) * one.clients.values[n][i]])])), "This site over rounds, a line per method", true)));
    if (drifts.length) pictures.push(make("div", {}, make("h3", {}, "Its update against the server's step"), chart(() => lines(drifts.map(([, one]) => [one.label, one.drift.cells
      .filter((cell) => cell[0] === i).map((cell) => [one.drift.rounds[cell[1]], cell[2]])]), true), "Cosine of its update with the server's step over rounds", true)));
    const failed = values.runs.flatMap((one) => one.failures.filter((f) => f.site === d.site[i]).map((f) => [one.label, one.seed, f.times, f.why]));
    dialog.replaceChildren(make("h2", { id: "client-name" }, `Site ${d.site[i]}`),
      make("p", {}, `${d.samples[i]} training samples, ${d.test_samples[i]} test samples${d.class[i] ? `; largest class ${d.class[i]}` : ""}.`),
      table(["method", "seed", ...columns.map(words)], same.map((one) => [one.label, one.seed, ...columns.map((name) => write(name, one.sites[name]?.[i]))]), `Site ${d.site[i]} in every run with this division`),
      make("div", { class: "pair" }, ...pictures),
      failed.length ? table(["method", "seed", "times", "why"], failed, "When it was left out", ["", "", "", "text"]) : make("p", { class: "quiet" }, "It was never left out."),
      make("form", { method: "dialog" }, make("button", { autofocus: true }, "Close")));
    dialog.showModal();
    attach(dialog);
  };
  const lines = (named, dots = false) => ({ ...base(), legend: { type: "scroll", top: 0, textStyle: { color: css("--ink") } }, xAxis: axis("round", { type: "value", min: "dataMin", max: "dataMax" }),
    yAxis: axis("", { type: "value", scale: true }), tooltip: { ...base().tooltip, trigger: "axis" },
    series: named.map(([label, data]) => ({ type: dots ? "scatter" : "line", symbolSize: 7, showSymbol: dots, name: label, itemStyle: { color: colour(label) }, lineStyle: { color: colour(label) }, data })) });

  // ---- one run ---------------------------------------------------------------------------------------------------
  const choice = (fits, change) => {
    const known = detailed().filter(([, one]) => fits(one));
    return known.length > 1 ? make("div", { class: "controls" }, select("Run", known.map(([i, one]) => [String(i), `${one.label}, seed ${one.seed}`]), known[0][0], change)) : null;
  };
  const ofOne = (fits, picture) => {
    const known = detailed().filter(([, one]) => fits(one));
    if (!known.length) return null;
    const holder = make("div", {});
    const show = (i) => { holder.replaceChildren(...picture(values.runs[i])); attach(holder); };
    show(known[0][0]);
    return make("div", {}, choice(fits, (to) => show(Number(to))), holder);
  };
  const cosines = () => ofOne((one) => one.drift, (one) => {
    const d = values.divisions[one.division], count = 1 + Math.max(...one.drift.cells.map((cell) => cell[0]));
    const names = d ? d.site : Array.from({ length: count }, (_, i) => String(i));
    const cells = one.drift.cells.map(([who, column, value]) => [column, who, value]);
    return [make("p", { class: "quiet" }, "Cosine of each client's update with the step the server took: 1 pulls along, below 0 pulls against it. Empty: not asked."),
      chart(() => heat(names, one.drift.rounds.map(String), cells, ["round", "site"], { low: -1, high: 1, colours: ["#D55E00", css("--chip"), "#0072B2"] }), "Cosine of updates by site and round")];
  });
  const matrix = () => ofOne((one) => one.confusion, (one) => {
    const names = one.confusion.classes.length ? one.confusion.classes : one.confusion.counts.map((_, i) => String(i));
    const cells = one.confusion.counts.flatMap((row, y) => row.map((count, x) => [x, y, count]));
    const worst = cells.filter(([x, y]) => x !== y).sort((a, b) => b[2] - a[2]).slice(0, 5).filter((cell) => cell[2]);
    return [make("p", { class: "quiet" }, `Rows are true classes, columns what the final model says. Most often: ${worst.map(([x, y, n]) => `${names[y]} taken for ${names[x]} (${n})`).join(", ") || "no mistake"}.`),
      chart(() => heat(names, names, cells, ["named", "true"], { text: true }), "Confusion matrix")];
  });
  const sure = () => {
    const known = values.runs.filter((one) => one.calibration);
    if (!known.length) return null;
    const points = (label) => {
      const own = known.filter((one) => one.label === label), bins = own[0].calibration.count.length;
      return Array.from({ length: bins }, (_, b) => {
        const count = own.reduce((sum, one) => sum + one.calibration.count[b], 0);
        const right = own.reduce((sum, one) => sum + one.calibration.correct[b], 0), said = own.reduce((sum, one) => sum + one.calibration.confidence[b], 0);
        return count ? [100 * said / count, 100 * right / count, count] : null;
      }).filter(Boolean);
    };
    const shown = [...new Set(known.map((one) => one.label))];
    return make("div", {}, make("p", { class: "quiet" }, "How often the final model is right, by how sure it says it is. On the diagonal it can be taken at its word; below it, it is too sure."),
      chart(() => ({ ...base(), legend: { type: "scroll", top: 0, textStyle: { color: css("--ink") } }, xAxis: axis("confidence %", { type: "value", min: 0, max: 100 }), yAxis: axis("right %", { type: "value", min: 0, max: 100, nameGap: 40 }),
        tooltip: { ...base().tooltip, formatter: (p) => `${escaped(p.seriesName)}<br>sure ${p.value[0].toFixed(1)} %, right ${p.value[1].toFixed(1)} %<br>${p.value[2]} samples` },
        series: [...shown.map((label) => ({ type: "line", symbolSize: 8, name: label, itemStyle: { color: colour(label) }, lineStyle: { color: colour(label) }, data: points(label) })),
          { type: "line", silent: true, showSymbol: false, lineStyle: { color: css("--quiet"), type: "dashed", width: 1 }, data: [[0, 0], [100, 100]], tooltip: { show: false } }] }), "Calibration"));
  };
  const cost = () => {
    const phases = [...new Set(values.runs.flatMap((one) => Object.keys(one.phases)))];
    if (!phases.length) return null;
    const tints = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9"];
    const of = (label, phase) => mean(values.runs.filter((one) => one.label === label).map((one) => one.phases[phase] || 0));
    return make("div", {}, chart(() => ({ ...base(), grid: { left: 8, right: 24, top: 40, bottom: 50, containLabel: true }, legend: { top: 0, textStyle: { color: css("--ink") } },
      xAxis: axis("seconds, mean over runs", { type: "value" }), yAxis: axis("", { type: "category", data: labels(), inverse: true }), tooltip: { ...base().tooltip, trigger: "axis", valueFormatter: (v) => `${v.toFixed(2)} s` },
      series: phases.map((phase, n) => ({ type: "bar", stack: "all", name: phase, itemStyle: { color: tints[n % tints.length] }, data: labels().map((label) => of(label, phase)) })) }), "Seconds by phase", labels().length < 5),
    table(["method", ...phases.map((phase) => `${phase} s`), "sent"], labels().map((label) => [label, ...phases.map((phase) => of(label, phase).toFixed(2)),
      bytes(mean(values.runs.filter((one) => one.label === label).map((one) => one.sent.at(-1) || 0)))]), "Seconds by phase and bytes in both directions, mean over runs"));
  };
  const failed = () => {
    const rows = values.runs.flatMap((one) => one.failures.map((f) => [one.label, one.seed, f.site, f.times, f.why]));
    return rows.length ? table(["method", "seed", "site", "times", "why"], rows.slice(0, 500), "Clients that were left out", ["", "", "", "", "text"]) : make("p", {}, "No client was left out.");
  };
  const again = () => ofOne((one) => one.command, (one) => [
    make("p", {}, "To run it again: ", make("code", {}, one.command)),
    Object.keys(one.versions).length ? make("p", { class: "quiet" }, `Made with ${Object.entries(one.versions).map(([name, v]) => `${name} ${v}`).join(", ")}.`) : "",
    make("details", {}, make("summary", {}, "All settings"), make("pre", { tabindex: "0" }, one.settings)),
    one.card ? make("details", { open: values.runs.length === 1 }, make("summary", {}, "The model's card"), make("pre", { tabindex: "0" }, one.card)) : ""]);

  const SECTIONS = [["answer", "", answer], ["methods", "Methods", methods], ["rounds", "Over rounds, seconds and bytes", rounds], ["fairness", "Fairness", fairness],
    ["sites", "Sites", sites], ["division", "Who holds what", parts], ["cosines", "Do clients pull alike?", cosines], ["confusion", "What is taken for what", matrix],
    ["calibration", "Is it as sure as it should be?", sure], ["cost", "Cost", cost], ["failures", "Failures", failed], ["again", "Settings, command and model card", again]];

  const build = () => {
    const main = document.getElementById("main"), menu = document.getElementById("contents"), place = scrollY;
    document.getElementById("title").textContent = values.title;
    document.getElementById("made").textContent = `${values.live ? "Followed live" : "Made"} ${values.made} by Accord ${values.accord}; ${values.runs.length} run${values.runs.length > 1 ? "s" : ""}`;
    document.getElementById("foot").textContent = "Everything on this page is in the page: it asks nobody for anything.";
    const made = SECTIONS.map(([id, title, fill]) => [id, title, fill()]).filter(([, , node]) => node);
    main.replaceChildren(...made.map(([id, title, node]) => make("section", { id, "aria-label": title || "The answer" }, title ? make("h2", {}, title) : null, node)));
    menu.replaceChildren(...made.filter(([, title]) => title).map(([id, title]) => make("li", {}, make("a", { href: `#${id}` }, title))));
    redraw();
    attach(main);
    scrollTo(0, place);
  };

  build();
  globalThis.accord = { get values() { return values; }, charts }; // for those who look closer, and for tests

  if (values.live) {
    const source = new EventSource("events");
    source.onmessage = (event) => {
      values = JSON.parse(event.data);
      const focus = document.activeElement;
      if (document.getElementById("client").open || focus?.matches?.("input, select")) { redraw(); return; }
      build();
    };
    source.addEventListener("over", () => source.close());
  }
})();
