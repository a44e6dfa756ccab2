"use strict";
// What pages draw with: elements, tables, pictures that are drawn when they come into view, light and dark. `still` says
// whether pictures must not move.
const drawing = (still) => {
  const charts = new Map(); // element -> [chart, options()]
  const make = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "onclick" || name === "onchange" || name === "oninput") node[name] = value;
      else if (value !== false && value !== null) node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.filter((child) => child !== null && child !== undefined));
    return node;
  };
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const escaped = (text) => String(text).replace(/[&<>"']/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" })[c]);
  const table = (titles, rows, caption, classes = []) => make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    make("table", {}, make("caption", {}, caption),
      make("thead", {}, make("tr", {}, ...titles.map((title, i) => make("th", { scope: "col", class: classes[i] || false }, title)))),
      make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((cell, i) => cell instanceof Node ? make("td", { class: classes[i] || false }, cell)
        : Array.isArray(cell) ? make("td", { class: cell[1] ? "best" : classes[i] || false }, cell[0]) : make("td", { class: classes[i] || false }, String(cell))))))));


  const chart = (options, description, low = false) => {
    const node = make("div", { class: low ? "chart low" : "chart", role: "img", "aria-label": description });
    charts.set(node, [null, options]);
    return node;
  };
  const base = () => ({
    animation: !matchMedia("(prefers-reduced-motion: reduce)").matches && !still(),
    backgroundColor: "transparent",
    textStyle: { color: css("--ink"), fontFamily: "inherit" },
    grid: { left: 62, right: 24, top: 44, bottom: 62, containLabel: false },
    tooltip: { backgroundColor: css("--paper"), borderColor: css("--rule"), textStyle: { color: css("--ink") }, confine: true },
  });
  const axis = (name, more = {}) => ({
    name, nameLocation: "middle", nameGap: 30, nameTextStyle: { color: css("--quiet") },
    axisLine: { lineStyle: { color: css("--rule") } }, axisLabel: { color: css("--quiet") },
    splitLine: { lineStyle: { color: css("--rule"), opacity: 0.6 } }, ...more,
  });
  const draw = (node) => {
    const entry = charts.get(node);
    if (!node.isConnected || !node.clientWidth) return;
    if (entry[0] === null) entry[0] = echarts.init(node, null, { renderer: "canvas" });
    entry[0].setOption(entry[1](), { notMerge: true });
  };
  // Pictures are drawn when they come into view: a page of a hundred runs opens at once.
  const watcher = new IntersectionObserver((seen) => seen.forEach((one) => { if (one.isIntersecting) draw(one.target); }), { rootMargin: "200px" });
  const resize = new ResizeObserver((seen) => seen.forEach((one) => charts.get(one.target)?.[0]?.resize()));
  const attach = (root) => root.querySelectorAll(".chart").forEach((node) => { watcher.observe(node); resize.observe(node); });
  const redraw = () => charts.forEach((entry, node) => {
    if (!node.isConnected) { entry[0]?.dispose(); charts.delete(node); } else if (entry[0] !== null) draw(node);
  });
  const heat = (rows, columns, cells, names, more = {}) => {
    const top = Math.max(1e-12, ...cells.map((cell) => cell[2]));
    const low = more.low ?? 0;
    return { ...base(), grid: { left: 8, right: 16, top: 12, bottom: 70, containLabel: true },
      xAxis: axis(names[0], { type: "category", data: columns, splitLine: { show: false } }),
      yAxis: axis("", { type: "category", data: rows, inverse: true, splitLine: { show: false }, axisLabel: { color: css("--quiet"), width: 110, overflow: "truncate" } }),
      visualMap: { min: low, max: more.high ?? top, calculable: true, orient: "horizontal", left: "center", bottom: 0, itemHeight: 90, textStyle: { color: css("--quiet") },
        inRange: { color: more.colours || [css("--chip"), "#56B4E9", "#0072B2", "#00334d"] } },
      tooltip: { ...base().tooltip, formatter: (p) => `${names[1]} ${escaped(rows[p.value[1]])}<br>${names[0]} ${escaped(columns[p.value[0]])}: ${p.value[2]}` },
      dataZoom: rows.length > 40 ? [{ type: "slider", yAxisIndex: 0, right: 0, width: 14, startValue: 0, endValue: 39 }, { type: "inside", yAxisIndex: 0 }] : [],
      series: [{ type: "heatmap", data: cells, progressive: 4000, label: { show: Boolean(more.text) && columns.length <= 12 && rows.length <= 12 }, emphasis: { itemStyle: { borderColor: css("--ink"), borderWidth: 1 } } }] };
  };
  const dark = () => (document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const button = document.getElementById("theme");
  const name = () => { button.textContent = dark() ? "Light" : "Dark"; };
  button.onclick = () => { document.documentElement.dataset.theme = dark() ? "light" : "dark"; name(); redraw(); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { name(); redraw(); });
  addEventListener("beforeprint", () => { document.querySelectorAll("details").forEach((node) => { node.open = true; }); document.querySelectorAll(".chart").forEach(draw); });
  name();
  return { make, css, escaped, table, chart, base, axis, heat, attach, draw, redraw, charts };
};
