"use strict";
// The page asks for documents of the contract and shows them. It keeps the key in this closure alone.
(() => {
  const MIB = 1048576, GIB = 1073741824, EVERY = 1000, HISTORY = 180;
  const NAMES = {
    weights: "model weights", kv: "KV cache", rs: "recurrent state", compute: "compute buffer",
    graph: "graph metadata", output: "output buffer", prompt_cache: "prompt cache",
    checkpoints: "context checkpoints", mmproj: "multimodal projector", draft: "draft model",
    pool: "the backend's own pool",
  };
  const KINDS = {
    allocation: "Memory refused at the start", buffer_limit: "One allocation above the device's limit",
    runtime_allocation: "Memory ran out", cache_full: "The KV cache is full",
    state_growth: "Saved state grew beyond its limit", reprocessing: "Prompts are read again in full",
    rpc: "An RPC worker was lost", backend: "A driver or kernel error",
    config: "The engine refuses this combination", model: "The model cannot be loaded",
    environment: "Something on this machine is in the way", killed: "Killed",
    hang: "It hung: alive without progress", crash: "It crashed",
  };
  const ACTIONS = {
    restart: "started again", smaller: "started smaller", without_worker: "started without the worker",
    give_up: "given up",
  };
  const DOING = {
    restart: "starting again", smaller: "starting smaller", without_worker: "starting without the worker",
    give_up: "given up",
  };
  const STATES = {
    starting: "The engine is loading. Requests wait for it.",
    recovering: "The engine was lost. Requests are held until it is back.",
    draining: "Ending when what is in flight is answered. Nothing new is taken.",
    failed: "The engine is not started again.",
  };
  const $ = (id) => document.getElementById(id);
  let key = "", last = null, shownLog = null, listed = "", timer = 0, state = "", asking = false;
  const history = [];

  function make(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children.filter((child) => child !== null && child !== ""));
    return node;
  }
  function text(id, value) {
    if ($(id).textContent !== value) $(id).textContent = value;
  }
  function figure(id, value, unit = "") {
    const whole = unit ? `${value} ${unit}` : value;
    if ($(id).dataset.shown === whole) return;
    $(id).dataset.shown = whole;
    $(id).replaceChildren(value, ...(unit ? [make("small", {}, `\u00a0${unit}`)] : []));
  }
  const number = (value) => Math.round(value).toLocaleString("en").replaceAll(",", "\u202f");
  const rate = (value) => (value < 100 ? value.toFixed(1) : number(value));
  const share = (part, whole) => Math.min(100, Math.max(0, (100 * part) / whole));
  const plural = (n, one, many = one + "s") => `${number(n)} ${n === 1 ? one : many}`;
  function size(bytes) {
    return bytes >= GIB ? `${(bytes / GIB).toFixed(bytes < 100 * GIB ? 2 : 0)} GiB` : `${(bytes / MIB).toFixed(0)} MiB`;
  }
  function time(seconds) {
    const s = Math.round(seconds);
    if (s < 10 && s !== seconds) return `${seconds.toFixed(1)} s`;
    if (s < 60) return `${s} s`;
    if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
    if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
    return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
  }
  function moment(at) {
    const date = new Date(at);
    if (isNaN(date)) return at;
    const clock = date.toLocaleTimeString("en-GB");
    return date.toDateString() === new Date().toDateString() ? clock : `${date.toLocaleDateString("sv-SE")} ${clock}`;
  }

  class Refused extends Error {}
  async function get(path, read = "json") {
    const headers = key ? { Authorization: `Bearer ${key}` } : {};
    const reply = await fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(10000) });
    if (reply.status === 401 || reply.status === 403) throw new Refused();
    if (!reply.ok) throw new Error(`${reply.status}`);
    return reply[read]();
  }

  function facts(id, rows) {
    const shown = JSON.stringify(rows);
    if ($(id).dataset.shown === shown) return;
    $(id).dataset.shown = shown;
    $(id).replaceChildren(...rows.flatMap(([name, value, mark]) => [
      make("dt", {}, name), make("dd", mark ? { class: mark } : {}, value),
    ]));
  }
  function bar(item, name, value, now, most, parts) {
    let row = item;
    if (!row.firstChild) {
      row.append(
        make("div", { class: "label" }, make("span", { class: "name" }), make("span", { class: "value" })),
        make("div", { class: "bar", role: "meter", "aria-valuemin": "0" }),
      );
    }
    row.querySelector(".name").textContent = name;
    row.querySelector(".value").textContent = value;
    const meter = row.querySelector(".bar");
    meter.setAttribute("aria-label", name);
    meter.setAttribute("aria-valuetext", value);
    meter.setAttribute("aria-valuenow", `${now}`);
    meter.setAttribute("aria-valuemax", `${most}`);
    meter.replaceChildren(...parts.map(([kind, left, width]) => {
      const part = make("span", { class: kind });
      part.style.left = `${left}%`;
      if (width !== null) part.style.width = `${width}%`;
      return part;
    }));
  }
  function rows(id, count) {
    const list = $(id);
    while (list.children.length > count) list.lastChild.remove();
    while (list.children.length < count) list.append(make("li"));
    return [...list.children];
  }

  function showMemory(pools) {
    const known = pools.filter((pool) => pool.total || pool.actual !== null || pool.planned !== null);
    $("memory-key").hidden = known.length === 0;
    if (known.length === 0) return void $("memory").replaceChildren(make("li", { class: "empty" }, "Not known."));
    if ($("memory").querySelector(".empty")) $("memory").replaceChildren();
    rows("memory", known.length).forEach((item, at) => {
      const { pool, planned, most, actual, total, free } = known[at];
      const top = Math.max(planned ?? 0, most ?? 0), grows = planned !== null && top > planned + 16 * MIB;
      const whole = total ?? Math.max(top, actual ?? 0, 1);
      const others = total !== null && free !== null ? Math.max(0, total - free - (actual ?? 0)) : 0;
      const taken = actual === null ? "not measured" : `${size(actual)} taken`;
      const words = [taken, planned === null ? "" : `${size(planned)} planned${grows ? `, ${size(top)} at most` : ""}`, total === null ? "" : `of ${size(total)}`];
      const mine = share(actual ?? 0, whole);
      item.className = planned !== null && actual !== null && actual > top * 1.05 + 64 * MIB ? "over" : "";
      bar(item, pool, words.filter(Boolean).join(" · "), actual ?? 0, whole, [
        ["taken", 0, mine], ["others", mine, Math.min(100 - mine, share(others, whole))],
        ...(grows ? [["most", Math.min(99.4, share(top, whole)), null]] : []),
        ...(planned === null ? [] : [["planned", Math.min(99.4, share(planned, whole)), null]]),
      ]);
    });
  }
  function showSlots(slots, state) {
    $("slots").classList.toggle("dense", slots.length > 4);
    if (slots.length === 0) return void $("slots").replaceChildren(make("li", { class: "empty" }, state === "ready" ? "Not known: the engine does not tell, or it sleeps." : "Known when the engine is ready."));
    if ($("slots").querySelector(".empty")) $("slots").replaceChildren();
    rows("slots", slots.length).forEach((item, at) => {
      const { id, busy, tokens, n_ctx } = slots[at];
      item.className = busy ? "busy" : "";
      const value = tokens === null ? "" : `${number(tokens)}${n_ctx ? ` of ${number(n_ctx)}` : ""}${slots.length > 4 ? "" : " tokens"}`;
      const most = n_ctx || Math.max(tokens ?? 0, 1);
      bar(item, slots.length > 4 ? `${id}` : `Slot ${id}`, value, tokens ?? 0, most, [["taken", 0, share(tokens ?? 0, most)]]);
    });
  }
  function showActivity(status) {
    const before = last && last.up_s < status.up_s ? last : null;
    const made = before && status.tokens.predicted !== null && before.tokens.predicted !== null
      ? Math.max(0, status.tokens.predicted - before.tokens.predicted) / Math.max(0.2, status.up_s - before.up_s) : 0;
    history.push({ tokens: made, flight: status.requests.in_flight });
    while (history.length > HISTORY) history.shift();
    // Tokens are counted when an answer ends: a mean over five seconds shows what was going on.
    const smooth = history.map((_, at) => {
      const part = history.slice(Math.max(0, at - 4), at + 1);
      return part.reduce((sum, one) => sum + one.tokens, 0) / part.length;
    });
    const mostTokens = Math.max(1, ...smooth), mostFlight = Math.max(1, ...history.map((one) => one.flight));
    const x = (at) => 600 - (history.length - 1 - at) * (600 / (Math.max(60, history.length) - 1));
    const line = smooth.map((value, at) => `${x(at).toFixed(1)},${(92 - (84 * value) / mostTokens).toFixed(1)}`);
    const area = history.map((one, at) => `${x(at).toFixed(1)},${(96 - (60 * one.flight) / mostFlight).toFixed(1)}`);
    const svg = (kind, name, points) => {
      const node = document.createElementNS("http://www.w3.org/2000/svg", kind);
      node.setAttribute("class", name);
      node.setAttribute("points", points);
      return node;
    };
    $("activity").replaceChildren(
      svg("polygon", "area", `${x(0).toFixed(1)},96 ${area.join(" ")} 600,96`), svg("polyline", "line", line.join(" ")),
    );
    text("activity-note", `last ${time(history.length)} · up to ${rate(mostTokens)} tokens a second · up to ${plural(mostFlight, "request")} in flight`);
  }

  function verdict(failure, signal) {
    let words = KINDS[failure.kind] ?? failure.kind;
    if (failure.kind === "killed" || failure.kind === "crash") words += signal ? ` by ${signal}` : "";
    if (failure.device && failure.kind !== "killed") words += ` on ${failure.device}`;
    if (failure.component) words += `: ${NAMES[failure.component] ?? failure.component}`;
    return words + (failure.bytes ? `, ${size(failure.bytes)}` : "");
  }
  function outcome(incident) {
    const { action, change, down_s, lost_context_tokens, requests, complete } = incident;
    return [
      action === null ? "being dealt with" : (complete ? ACTIONS : DOING)[action] ?? action, change,
      down_s === null ? "" : `${time(down_s)} without an engine`,
      lost_context_tokens ? `${plural(lost_context_tokens, "token")} of context lost` : "",
      requests.replayed ? `${number(requests.replayed)} replayed` : "",
      requests.continued ? `${number(requests.continued)} continued` : "",
      requests.error_events ? `${plural(requests.error_events, "error event")}` : "",
    ].filter(Boolean).join(" · ");
  }
  function details(incident) {
    const { verdict: failure, status, signal, build, up_s, reread_s, why, requests, id } = incident;
    const list = [
      ["Incident", id], ["Why", why], ["Ended", signal ?? (status === null ? "" : `with status ${status}`)],
      [failure.line ? `Line ${failure.line}` : "Evidence", failure.text], ["Rules out", failure.not_this.join(", ")], ["Build", build === null ? "" : `b${build}`],
      ["Had been up", up_s === null ? "" : time(up_s)],
      ["Reading again", reread_s === null ? "" : `about ${time(reread_s)}`],
      ["In flight", `${number(requests.in_flight)}`],
    ].filter(([, value]) => value);
    const log = make("pre", { tabindex: "0", "aria-label": `Last lines of the log before ${id}` }, "…");
    const more = make("div", { class: "more" },
      make("dl", { class: "facts" }, ...list.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)])), log);
    return [more, log];
  }
  function incidentNode(incident) {
    const back = incident.complete ? outcome(incident) : make("span", { class: "open" }, outcome(incident));
    const node = make("details", { class: "incident", "data-id": incident.id },
      make("summary", {},
        make("span", { class: "what" }, verdict(incident.verdict, incident.signal)),
        make("time", { class: "when", datetime: incident.at }, moment(incident.at)),
        make("span", { class: "done" }, back)));
    const [more, log] = details(incident);
    node.append(more);
    node.addEventListener("toggle", async () => {
      if (!node.open || log.dataset.read) return;
      log.dataset.read = "yes";
      try {
        log.textContent = (await get(`incidents/${encodeURIComponent(incident.id)}`)).log.join("\n") || "It printed nothing.";
      } catch { log.textContent = "It could not be read."; }
    });
    return node;
  }
  async function showIncidents(ids, current) {
    const open = listed.includes('"complete":false');
    if (!open && current === showIncidents.ids) return;
    const { incidents } = await get("incidents");
    showIncidents.ids = current;
    const shown = JSON.stringify(incidents);
    if (shown === listed) return;
    listed = shown;
    if (incidents.length === 0) return void $("incidents").replaceChildren(make("p", { class: "empty" }, "None so far."));
    const opened = new Set([...document.querySelectorAll("details[open]")].map((node) => node.dataset.id));
    $("incidents").replaceChildren(...incidents.map(incidentNode));
    for (const node of $("incidents").children) node.open = opened.has(node.dataset.id);
  }
  async function showLog() {
    const log = await get("log", "text");
    if (log === shownLog) return;
    shownLog = log;
    $("log").textContent = log || "Nothing yet.";
    if ($("follow").getAttribute("aria-pressed") === "true") $("log").scrollTop = $("log").scrollHeight;
  }

  function showState(word, why) {
    $("state").dataset.state = word;
    text("state-word", word === "gone" ? "no connection" : word);
    const banner = word === "gone" ? "No connection to Arriero. Trying again." : STATES[word] ?? "";
    $("banner").hidden = !banner;
    $("banner").classList.toggle("bad", word === "failed" || word === "gone");
    text("banner", [banner, why && `${why[0].toUpperCase()}${why.slice(1)}.`].filter(Boolean).join(" "));
    if (word !== state && state !== "") text("announce", banner || `The engine is ${word}.`);
    state = word;
  }
  function showFigures({ requests, tokens, engine, gates, memory, slots, up_s, version, model }) {
    figure("in-flight", number(requests.in_flight));
    text("waiting", requests.waiting ? `${number(requests.waiting)} waiting` : "none waiting");
    if (tokens.predict_tps === null) figure("tps", "–");
    else figure("tps", rate(tokens.predict_tps), "tokens/s");
    text("prompt-tps", tokens.prompt_tps === null ? "no answer yet" : `prompts ${rate(tokens.prompt_tps)} tokens/s`);
    const prompts = (tokens.prompt ?? 0) + (tokens.reused ?? 0);
    const reused = tokens.reused !== null && prompts > 0;
    if (reused) figure("reuse", `${Math.round(share(tokens.reused, prompts))}`, "%");
    else figure("reuse", "–");
    text("reuse-note", reused ? `${number(tokens.reused)} of ${plural(prompts, "token")}` : tokens.prompt ? "this build does not tell" : "no prompt yet");
    figure("answered", number(requests.answered));
    text("answered-note", requests.lost ? `${number(requests.lost)} lost` : `of ${number(requests.received)} received, none lost`);
    const alarm = (value) => (value ? "alarm" : "zero"), plain = (value) => (value ? "" : "zero");
    facts("requests", [
      ["Received", number(requests.received)], ["Answered", number(requests.answered), plain(requests.answered)],
      ["Held", number(requests.held), plain(requests.held)], ["Replayed", number(requests.replayed), plain(requests.replayed)],
      ["Continued", number(requests.continued), plain(requests.continued)],
      ["Refused", number(requests.refused), plain(requests.refused)],
      ["Cancelled", number(requests.cancelled), plain(requests.cancelled)],
      ["Error events", number(requests.error_events), alarm(requests.error_events)],
      ["Executed twice", number(requests.executed_twice), alarm(requests.executed_twice)],
      ["Lost", number(requests.lost), alarm(requests.lost)],
    ]);
    facts("engine", [
      ["Process", engine.pid === null ? "none" : `${engine.pid}`], ["Build", engine.build === null ? "unknown" : `b${engine.build}`],
      ["Ready after", engine.ready_s === null ? "not yet" : time(engine.ready_s)],
      ["Restarts", number(engine.restarts)], ...(engine.up_s === null ? [] : [["Up", time(engine.up_s)]]),
      ["Server up", time(up_s)],
    ]);
    $("gates-head").hidden = gates.length === 0;
    $("gates").replaceChildren(...gates.map((gate) => make("li", {}, make("code", {}, gate.change), `: ${gate.why}`)));
    text("command", engine.argv.join(" "));
    text("model", model);
    text("footer", `Arriero ${version}`);
    document.title = `${state}${model ? ` · ${model}` : ""} – Arriero`;
    showMemory(memory);
    showSlots(slots, state);
  }

  async function round() {
    if (asking) return;
    asking = true;
    clearTimeout(timer);
    await look();
    asking = false;
    if ($("key-form").hidden && !document.hidden) timer = setTimeout(round, EVERY);
  }
  async function look() {
    try {
      const status = await get("status");
      $("key-form").hidden = true;
      $("main").hidden = false;
      showState(status.state, status.why);
      showFigures(status);
      showActivity(status);
      last = status;
      await showIncidents(status.incidents, status.incidents.join());
      await showLog();
    } catch (error) {
      if (error instanceof Refused) return askKey();
      showState("gone", "");
    }
  }
  function askKey() {
    $("main").hidden = true;
    text("state-word", "locked");
    $("state").dataset.state = "unknown";
    text("key-wrong", key ? "That key is not one of this server's." : "");
    key = "";
    $("key-form").hidden = false;
    $("key").value = "";
    $("key").focus();
  }
  $("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    key = $("key").value.trim();
    $("key").value = "";
    round();
  });
  $("follow").addEventListener("click", () => {
    const on = $("follow").getAttribute("aria-pressed") !== "true";
    $("follow").setAttribute("aria-pressed", `${on}`);
    if (on) $("log").scrollTop = $("log").scrollHeight;
  });
  document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : round()));
  round();
})();
