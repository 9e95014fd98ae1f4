"use strict";
/* Everything that moves: theme, navigation, tables, plots, copying. No library but plotly.js, no network. */
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const one = (id) => document.getElementById(id);
  const all = (query, from) => Array.from((from || document).querySelectorAll(query));
  const narrow = window.matchMedia("(max-width: 62rem)");
  let printing = false;

  function element(name, text, className) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  }

  // ---------------------------------------------------------------------------------------------------- theme

  const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => !printing && (root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches);

  function remember(theme) {
    try { localStorage.setItem("kerneleval-theme", theme); } catch { /* a browser may keep nothing for files */ }
  }

  function remembered() {
    try { return localStorage.getItem("kerneleval-theme"); } catch { return null; }
  }

  function showTheme() {
    one("theme").setAttribute("aria-pressed", String(isDark()));
    one("theme").textContent = isDark() ? "Light theme" : "Dark theme";
    redraw();
  }

  if (["light", "dark"].includes(remembered())) root.dataset.theme = remembered();
  one("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    remember(root.dataset.theme);
    showTheme();
  });
  prefersDark.addEventListener("change", showTheme);

  // ---------------------------------------------------------------------------------------------------- navigation

  const nav = one("nav");
  function openNav(open) {
    nav.classList.toggle("open", open);
    one("menu").setAttribute("aria-expanded", String(open));
  }
  one("menu").addEventListener("click", () => openNav(!nav.classList.contains("open")));
  nav.addEventListener("click", (event) => { if (event.target.closest("a")) openNav(false); });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && nav.classList.contains("open")) { openNav(false); one("menu").focus(); }
  });

  const links = new Map(all("li a", nav).map((link) => [link.getAttribute("href").slice(1), link]));
  const sections = all("main > section");
  function markSection() {
    const line = Math.min(120, window.innerHeight / 3);  // a link leads its section to just above it
    let current = sections[0];
    for (const section of sections) if (section.getBoundingClientRect().top <= line) current = section;
    if (window.innerHeight + window.scrollY >= document.body.scrollHeight - 4) current = sections[sections.length - 1];
    for (const [id, link] of links) {
      if (id === current.id) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
    }
    one("here").textContent = links.get(current.id) ? links.get(current.id).textContent : "";
  }
  let marking = false;
  window.addEventListener("scroll", () => {
    if (!marking) { marking = true; requestAnimationFrame(() => { marking = false; markSection(); }); }
  }, { passive: true });
  markSection();

  // A link to a folded place opens it.
  function unfold() {
    let place = location.hash.length > 1 ? one(decodeURIComponent(location.hash.slice(1))) : null;
    const target = place;
    for (; place; place = place.parentElement) if (place.tagName === "DETAILS") place.open = true;
    if (target) target.scrollIntoView();
  }
  window.addEventListener("hashchange", unfold);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (link && link.getAttribute("href") === location.hash) unfold();
  });
  if (location.hash) unfold();

  // ---------------------------------------------------------------------------------------------------- tables

  const byText = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

  // Values before missing ones in both directions.
  function compare(a, b, sign) {
    const missing = (v) => v === null || v === "" || v === undefined;
    if (missing(a) || missing(b)) return missing(a) - missing(b);
    return sign * (typeof a === "number" && typeof b === "number" ? a - b : byText.compare(String(a), String(b)));
  }

  function nextDirection(head) {
    const now = head.getAttribute("aria-sort");
    const first = head.classList.contains("n") ? "descending" : "ascending";
    if (!now) return first;
    return now === "ascending" ? "descending" : "ascending";
  }

  function markSorted(head, direction) {
    for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", direction);
  }

  function valueOf(row, column) {
    const cell = row.children[column];
    if (cell.dataset.v !== undefined) return cell.dataset.v === "" ? null : Number(cell.dataset.v);
    return cell.textContent.trim();
  }

  for (const table of all("table.sortable")) {
    table.tHead.addEventListener("click", (event) => {
      const button = event.target.closest(".sort");
      if (!button) return;
      const head = button.closest("th");
      const direction = nextDirection(head);
      const column = Array.prototype.indexOf.call(head.parentElement.children, head);
      const sign = direction === "ascending" ? 1 : -1;
      const rows = Array.from(table.tBodies[0].rows);
      const keyed = rows.map((row) => [valueOf(row, column), row]).sort((a, b) => compare(a[0], b[0], sign));
      table.tBodies[0].append(...keyed.map((pair) => pair[1]));
      markSorted(head, direction);
    });
  }

  for (const input of all("[data-search]")) {
    const table = one(input.dataset.search);
    const count = document.querySelector(`[data-count="${input.dataset.search}"]`);
    const find = () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      const rows = Array.from(table.tBodies[0].rows);
      let shown = 0;
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        shown += !row.hidden;
      }
      count.textContent = words.length ? `${shown} of ${rows.length}` : "";
    };
    input.addEventListener("input", find);
  }

  // ---------------------------------------------------------------------------------------------------- copying

  async function copyText(text) {
    try { await navigator.clipboard.writeText(text); return true; } catch { /* not allowed here: the old way */ }
    const area = element("textarea");
    area.value = text;
    area.style.position = "fixed";
    area.style.opacity = "0";
    document.body.append(area);
    area.select();
    let done = false;
    try { done = document.execCommand("copy"); } catch { /* told below */ }
    area.remove();
    return done;
  }

  document.addEventListener("click", async (event) => {
    const button = event.target.closest(".copy");
    if (!button) return;
    const line = button.parentElement.querySelector("code");
    const done = await copyText(line.textContent);
    if (!done) {
      const range = document.createRange();
      range.selectNodeContents(line);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
    }
    button.textContent = done ? "Copied" : "Selected";
    setTimeout(() => { button.textContent = "Copy"; }, 1600);
  });

  // ---------------------------------------------------------------------------------------------------- plots

  let palette = {};
  function readPalette() {
    const style = getComputedStyle(root);
    palette = {};
    for (const name of ["paper", "sheet", "ink", "ink-soft", "line", "line-strong", "accent",
      ...Array.from({ length: 8 }, (_, i) => `g${i}`)]) palette[name] = style.getPropertyValue(`--${name}`).trim();
  }

  function paint(text) {
    const [name, opacity] = text.slice(1).split("/");
    const hex = palette[name];
    if (hex === undefined) return text;
    if (opacity === undefined) return hex;
    const full = hex.length === 4 ? hex.replace(/[0-9a-f]/gi, "$&$&") : hex;
    const [r, g, b] = [1, 3, 5].map((i) => parseInt(full.slice(i, i + 2), 16));
    return `rgba(${r}, ${g}, ${b}, ${opacity})`;
  }

  const COLOUR_KEYS = new Set(["color", "fillcolor", "gridcolor", "linecolor", "bgcolor", "bordercolor"]);
  function coloured(value, key) {
    if (typeof value === "string") return COLOUR_KEYS.has(key) && value[0] === "@" ? paint(value) : value;
    if (Array.isArray(value)) return value.map((part) => coloured(part, key));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, coloured(part, name)]));
    }
    return value;
  }

  const hidden = new Map(); // plot -> generators switched off
  const drawn = new Map(); // plot -> specification
  const logarithmic = new Set();

  function draw(id, spec) {
    const place = one(id);
    const off = hidden.get(id) || new Set();
    const traces = coloured(spec.data).map((trace) => ({ ...trace, visible: !off.has(trace.legendgroup) }));
    const layout = coloured(spec.layout);
    const width = place.clientWidth;
    Object.assign(layout, {
      height: spec.height,
      width: width,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: narrow.matches ? 11 : 12.5, color: palette.ink },
      hoverlabel: { bgcolor: palette.sheet, bordercolor: palette["line-strong"], font: { color: palette.ink }, align: "left" },
      dragmode: window.matchMedia("(pointer: coarse)").matches ? false : "zoom",
    });
    if (logarithmic.has(id)) {
      const positive = spec.data.flatMap((trace) => trace.x).filter((x) => x > 1e-6);
      const low = Math.min(...positive, 0.5), high = Math.max(...positive, 2);
      for (const trace of traces) trace.x = trace.x.map((x) => (x > 1e-6 ? x : low / 1.2));
      layout.xaxis = { ...layout.xaxis, type: "log", range: [Math.log10(low / 1.2), Math.log10(high)], dtick: undefined, rangemode: undefined };
      layout.shapes = layout.shapes.map((shape) => ({ ...shape }));
      layout.annotations = layout.annotations.map((note) => ({ ...note, x: note.x > 0 ? Math.log10(note.x) : note.x }));
    }
    drawn.set(id, spec);
    Plotly.react(place, traces, layout, { displaylogo: false, displayModeBar: false, showTips: false });
  }

  function redraw() {
    readPalette();
    for (const [id, spec] of drawn) draw(id, spec);
  }

  readPalette();
  const waiting = new Map(Object.entries(data.plots).filter(([id]) => one(id)));
  if (one("plot-operator")) waiting.set("plot-operator", null);

  function start(id) {
    if (!waiting.has(id)) return;
    const spec = waiting.get(id);
    waiting.delete(id);
    if (id === "plot-operator") showOperator(Number(one("operator").value)); else draw(id, spec);
  }

  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) { seen.unobserve(entry.target); start(entry.target.id); }
  }, { rootMargin: "400px" });
  for (const id of waiting.keys()) seen.observe(one(id));

  let resizing = 0;
  let lastWidth = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === lastWidth) return; // a phone's address bar comes and goes
    lastWidth = window.innerWidth;
    clearTimeout(resizing);
    resizing = setTimeout(redraw, 120);
  });

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-toggle]");
    if (!button) return;
    const id = button.dataset.toggle;
    const off = hidden.get(id) || new Set();
    hidden.set(id, off);
    if (!off.delete(button.dataset.g)) off.add(button.dataset.g);
    button.setAttribute("aria-pressed", String(!off.has(button.dataset.g)));
    start(id);
    draw(id, drawn.get(id));
  });

  if (one("fast-log")) {
    one("fast-log").addEventListener("click", () => {
      const id = "plot-fast-p";
      if (!logarithmic.delete(id)) logarithmic.add(id);
      one("fast-log").setAttribute("aria-pressed", String(logarithmic.has(id)));
      start(id);
      draw(id, data.plots[id]);
    });
  }

  // ---------------------------------------------------------------------------------------------------- one operator

  const FILLS = ["", "-open", "-dot", "-open-dot"];
  const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross", "x", "star", "hexagon"];
  // plotly.js reads tags in labels
  const escaped = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const figure = (v) => (v === null ? "–" : v.toLocaleString("en", { maximumSignificantDigits: 3 }));

  function operatorPlot(operator) {
    const names = data.shapes.categories;
    const traces = [];
    let low = 0.8, high = 1.25;
    const group = Object.keys(operator.points).length;
    Object.entries(operator.points).forEach(([generator, points], nth) => {
      const slot = Math.max(0, data.colours.indexOf(generator));
      const shift = (nth - (group - 1) / 2) * Math.min(0.2, 0.7 / group);
      for (const s of points.s) if (s > 0) { low = Math.min(low, s); high = Math.max(high, s); }
      const gap = (a, b) => (a === null || b === null || a < b ? 0 : a - b);
      traces.push({
        type: "scatter", mode: "markers", legendgroup: String(slot), name: escaped(generator), x: points.s,
        y: points.c.map((c) => c + shift),
        error_x: { type: "data", array: points.high.map((h, i) => gap(h, points.s[i])), arrayminus: points.low.map((l, i) => gap(points.s[i], l)), color: `@g${slot % 8}/0.4`, thickness: 1, width: 0 },
        marker: { color: `@g${slot % 8}`, size: 8, opacity: 0.85, symbol: SYMBOLS[slot % 8] + FILLS[Math.floor(slot / 8) % 4] },
        customdata: points.t.map((t, i) => [escaped(t), figure(points.low[i]), figure(points.high[i])]),
        hovertemplate: "<b>%{fullData.name}</b> %{x:.3g}× [%{customdata[1]}, %{customdata[2]}]<br>%{customdata[0]}<extra></extra>",
      });
    });
    const air = Math.pow(high / low, 0.06);
    low /= air; high *= air;
    const ticks = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].filter((v) => v >= low && v <= high);
    const many = ticks.length > 7 ? ticks.filter((v) => /^0?\.?0*1/.test(String(v)) || String(v)[0] === "1") : ticks;
    const bands = names.map((_, i) => i).filter((i) => i % 2 === 0).map((i) => ({ type: "rect", xref: "paper", x0: 0, x1: 1, y0: i - 0.5, y1: i + 0.5, fillcolor: "@ink/0.035", line: { width: 0 }, layer: "below" }));
    return {
      data: traces,
      height: 110 + 32 * names.length,
      layout: {
        showlegend: false, hovermode: "closest", margin: { l: 12, r: 12, t: 8, b: 44 },
        xaxis: { title: { text: "speedup", standoff: 8 }, type: "log", range: [Math.log10(low), Math.log10(high)], tickvals: many, ticktext: many.map((v) => `${v}×`), gridcolor: "@line", linecolor: "@line-strong", zeroline: false, automargin: true },
        yaxis: { tickvals: names.map((_, i) => i), ticktext: names.map((n) => escaped({ power_of_two: "2ⁿ", non_power_of_two: "not 2ⁿ" }[n] || n)), range: [names.length - 0.4, -0.6], showgrid: false, zeroline: false, automargin: true },
        shapes: [...bands, { type: "line", x0: 1, x1: 1, yref: "paper", y0: 0, y1: 1, line: { color: "@ink-soft", width: 1, dash: "dot" }, layer: "below" }],
      },
    };
  }

  function showOperator(index) {
    const operator = data.shapes.operators[index];
    if (!operator) return;
    one("operator").value = String(index);
    waiting.delete("plot-operator");
    draw("plot-operator", operatorPlot(operator));
    one("operator-note").textContent = operator.shown < operator.timed
      ? `${operator.task}: showing ${operator.shown.toLocaleString("en")} of ${operator.timed.toLocaleString("en")} timed cells, drawn at random. Colours as above.`
      : `${operator.task}: all ${operator.timed.toLocaleString("en")} timed cells, with their intervals. Colours as above.`;
  }

  if (one("operator")) {
    one("operator").addEventListener("change", () => showOperator(Number(one("operator").value)));
    const options = Array.from(one("operator").options);
    one("operator-search").addEventListener("input", () => {
      const word = one("operator-search").value.trim().toLowerCase();
      const found = options.filter((option) => option.textContent.toLowerCase().includes(word));
      one("operator").replaceChildren(...found);
      one("operator-found").textContent = word ? `${found.length} of ${options.length} operators` : `${options.length} operators`;
      if (found.length) { one("operator").value = found[0].value; showOperator(Number(found[0].value)); }
    });
    document.addEventListener("click", (event) => {
      const panel = event.target.closest("[data-operator]");
      if (!panel) return;
      one("operator-search").value = "";
      one("operator").replaceChildren(...options);
      one("operator-found").textContent = `${options.length} operators`;
      showOperator(Number(panel.dataset.operator));
      one("operator").scrollIntoView({ block: "center" });
    });
  }

  // ---------------------------------------------------------------------------------------------------- every cell

  const PAGE = 50;
  function cellsTable() {
    const table = one("t-cells");
    if (!table) return;
    const columns = data.cells.columns;
    const column = Object.fromEntries(columns.map((c) => [c.name, c]));
    const value = (c, row) => (c.words ? c.words[c.codes[row]] : c.values[row]);
    const shown = columns.filter((c) => c.title);
    const total = columns[0].codes.length;
    const texts = new Array(total);
    const textOf = (row) => texts[row] || (texts[row] = shown.map((c) => value(c, row)).filter((v) => v !== null).join(" ").toLowerCase());
    let order = Array.from({ length: total }, (_, i) => i);
    let found = order;
    let page = 0;

    const tests = {
      all: () => true,
      failed: (row) => value(column.outcome, row) !== "right",
      slower: (row) => value(column.claim, row) === "slower",
      faster: (row) => value(column.claim, row) === "faster",
      untimed: (row) => value(column.outcome, row) === "right" && value(column.speedup, row) === null,
    };

    const heads = element("tr");
    for (const c of shown) {
      const head = element("th", undefined, c.values ? "n" : "");
      head.scope = "col";
      const button = element("button", c.title, "sort");
      button.type = "button";
      head.append(button);
      button.addEventListener("click", () => {
        const direction = nextDirection(head);
        const sign = direction === "ascending" ? 1 : -1;
        order = order.slice().sort((a, b) => compare(value(c, a), value(c, b), sign));
        markSorted(head, direction);
        filter();
      });
      heads.append(head);
    }
    table.tHead.replaceChildren(heads);

    function cell(c, row) {
      const v = value(c, row);
      if (c.name === "generator") {
        const td = element("td");
        const who = element("span", undefined, "who");
        who.append(element("span", undefined, `dot g${Math.max(0, data.colours.indexOf(v)) % 8}`), element("span", v, "name"));
        td.append(who);
        return td;
      }
      if (c.name === "speedup") {
        const td = element("td", undefined, "n");
        if (v === null) { td.append(element("span", "–", "none")); return td; }
        td.append(element("span", `${figure(v)}×`, "v"), element("span", `${figure(column.low.values[row])}–${figure(column.high.values[row])}×`, "ci"));
        return td;
      }
      return element("td", v === null ? "" : String(v), c.values ? "n" : "");
    }

    function render() {
      const from = page * PAGE;
      const rows = found.slice(from, from + PAGE).map((row) => {
        const tr = element("tr");
        tr.append(...shown.map((c) => cell(c, row)));
        return tr;
      });
      table.tBodies[0].replaceChildren(...rows);
      const said = (n) => n.toLocaleString("en");
      one("cells-count").textContent = found.length
        ? `${said(from + 1)}–${said(Math.min(from + PAGE, found.length))} of ${said(found.length)}` : "no such cell";
      one("cells-back").disabled = page === 0;
      one("cells-on").disabled = from + PAGE >= found.length;
    }

    function filter() {
      const words = one("cells-search").value.toLowerCase().split(/\s+/).filter(Boolean);
      const test = tests[one("cells-which").value];
      found = order.filter((row) => test(row) && words.every((word) => textOf(row).includes(word)));
      page = 0;
      render();
    }

    one("cells-search").addEventListener("input", filter);
    one("cells-which").addEventListener("change", filter);
    one("cells-back").addEventListener("click", () => { page -= 1; render(); });
    one("cells-on").addEventListener("click", () => { page += 1; render(); });
    filter();
  }
  cellsTable();

  // ---------------------------------------------------------------------------------------------------- printing

  window.addEventListener("beforeprint", () => {
    printing = true;
    for (const fold of all("details.more")) fold.open = true;
    for (const id of Array.from(waiting.keys())) start(id);
    redraw();
  });
  window.addEventListener("afterprint", () => { printing = false; redraw(); });

  showTheme();
})();
