// The map: draws the points, positions the names of groups, and turns a line around points into a list.
// Model text is only ever inserted as text; the list comes from the server as HTML of its own templates.

import createScatterplot from "./regl-scatterplot-1.16.0.min.js";

const frame = document.querySelector("#map");
const canvas = frame.querySelector("canvas");
const state = document.querySelector("#map-state");
const tip = document.querySelector("#tip");
const names = [...frame.querySelectorAll(".map-names span")].map((box) => ({ box, x: +box.dataset.x, y: +box.dataset.y, n: +box.dataset.n }));
const corners = 60;

const rest = () => [...document.querySelectorAll("#palette i")].map((one) => hex(getComputedStyle(one).color));
const ink = () => hex(getComputedStyle(frame).color);
const ground = () => hex(getComputedStyle(frame).backgroundColor);

// Computed colors are written in many ways; a canvas understands them all.
const brush = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
function hex(color) {
  brush.clearRect(0, 0, 1, 1);
  brush.fillStyle = color;
  brush.fillRect(0, 0, 1, 1);
  return `#${[...brush.getImageData(0, 0, 1, 1).data].slice(0, 3).map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}

// --- the points -------------------------------------------------------------------------------------------------

async function load() {
  const answer = await fetch(frame.dataset.points);
  if (!answer.ok) throw new Error("The points cannot be read. Reload the page.");
  const data = await answer.arrayBuffer();
  const n = data.byteLength / 16;
  return { n, x: new Float32Array(data, 0, n), y: new Float32Array(data, 4 * n, n), z: new Float32Array(data, 8 * n, n), at: new Uint32Array(data, 12 * n, n) };
}

const size = (n) => (n < 300 ? 10 : n < 2_000 ? 8 : n < 20_000 ? 5.5 : n < 200_000 ? 2.5 : 1.5);
const clarity = (n) => (n < 2_000 ? 0.85 : n < 20_000 ? 0.7 : n < 200_000 ? 0.5 : 0.35);
// All of the map is in view, however the frame is shaped.
const distance = () => 1.12 * Math.max(1, frame.clientHeight / frame.clientWidth);

function make(n) {
  return createScatterplot({
    canvas,
    width: frame.clientWidth,
    height: frame.clientHeight,
    cameraDistance: distance(),
    pointSize: size(n),
    pointSizeSelected: 1,
    pointOutlineWidth: 1,
    opacity: clarity(n),
    opacityInactiveMax: 1,
    opacityInactiveScale: 0.35,
    colorBy: "valueA",
    pointColor: rest(),
    pointColorActive: rest(),
    pointColorHover: rest(),
    backgroundColor: ground(),
    lassoColor: ink(),
    lassoClearEvent: "lassoEnd",
    lassoOnLongPress: true,
    actionKeyMap: { lasso: "shift", merge: "ctrl", remove: "alt" },
    showReticle: false,
    // A worker from a blob is forbidden here; a million points are indexed in about a second.
    spatialIndexUseWorker: false,
    performanceMode: n > 200_000,
  });
}

// --- names over it ----------------------------------------------------------------------------------------------

let view = null;

function screen(x, y) {
  const [width, height] = [frame.clientWidth, frame.clientHeight];
  const across = view ? view[0] * x + view[4] * y + view[12] : x;
  const up = view ? view[1] * x + view[5] * y + view[13] : y;
  return [((across * height) / width + 1) * 0.5 * width, (1 - up) * 0.5 * height];
}

// The width of a name as written: its box may be wider than its lines.
function measure(name) {
  const range = document.createRange();
  range.selectNodeContents(name.box);
  [name.w, name.h] = [range.getBoundingClientRect().width, name.box.offsetHeight];
}

const outline = frame.querySelector("polygon");
let line = [];

function place() {
  outline.setAttribute("points", line.map(([x, y]) => screen(x, y).map((one) => one.toFixed(1)).join()).join(" "));
  const taken = [];
  // The largest first; a name that would cover another is hidden until there is room.
  for (const name of names) {
    const [x, y] = screen(name.x, name.y);
    if (name.w === undefined) measure(name);
    const { w, h } = name;
    // Moved aside instead of cut off.
    const left = Math.min(Math.max(x - w / 2, Math.min(4, x)), Math.max(frame.clientWidth - w - 4, x - w)), top = y - h / 2;
    const free = taken.every(([l, t, r, b]) => left > r + 4 || left + w < l - 4 || top > b + 2 || top + h < t - 2);
    const inside = x > 0 && x < frame.clientWidth && top > 0 && top < frame.clientHeight - h;
    name.box.classList.toggle("on", free && inside);
    if (!free || !inside) continue;
    taken.push([left, top, left + w, top + h]);
    name.box.style.transform = `translate(${(left + (w - name.box.offsetWidth) / 2).toFixed(1)}px, ${top.toFixed(1)}px)`;
  }
}

// --- the text under the pointer ---------------------------------------------------------------------------------

const known = new Map();
let wanted = -1;

async function about(at) {
  if (!known.has(at)) {
    const answer = await fetch(`${frame.dataset.text}&at=${at}`);
    if (!answer.ok) return null;
    if (known.size > 2_000) known.clear();
    known.set(at, await answer.json());
  }
  return known.get(at);
}

async function over(plot, index, at) {
  wanted = index;
  frame.classList.add("over");
  await new Promise((done) => setTimeout(done, 40));
  if (wanted !== index) return;
  const said = await about(at);
  if (wanted !== index || !said) return;
  tip.querySelector(".said").textContent = said.text;
  tip.querySelector(".about").textContent = [said.who, said.stop, said.group].filter(Boolean).join(" · ");
  tip.hidden = false;
  const [x, y] = plot.getScreenPosition(index) ?? [0, 0];
  const left = Math.min(Math.max(8, x + 14), frame.clientWidth - tip.offsetWidth - 8);
  const above = y + 14 + tip.offsetHeight > frame.clientHeight - 8;
  tip.style.transform = `translate(${left.toFixed(0)}px, ${Math.max(8, above ? y - tip.offsetHeight - 14 : y + 14).toFixed(0)}px)`;
}

function out() {
  wanted = -1;
  tip.hidden = true;
  frame.classList.remove("over");
}

// --- the line around points -------------------------------------------------------------------------------------

const written = (line) => line.map(([x, y]) => `${+x.toFixed(3)},${+y.toFixed(3)}`).join(";");
const read = (text) => text.split(";").filter(Boolean).map((one) => one.split(",").map(Number));

function fewer(line) {
  const every = Math.max(1, Math.ceil(line.length / corners));
  return line.filter((_, number) => number % every === 0);
}

async function list(area) {
  const address = new URL(location.href);
  if (area) address.searchParams.set("area", area);
  else address.searchParams.delete("area");
  history.replaceState(null, "", address);
  const choice = document.querySelector("#choice");
  choice.hidden = !area;
  if (area) await fill(`${frame.dataset.rows}&area=${encodeURIComponent(area)}`, true);
}

async function fill(link, replace) {
  const answer = await fetch(link);
  if (!answer.ok) return;
  const points = document.querySelector("#points");
  const html = document.createElement("template");
  html.innerHTML = await answer.text();
  points.querySelector(".more")?.remove();
  if (replace) points.replaceChildren(html.content);
  else points.append(html.content);
}

// --- fingers: one moves (or draws), two zoom ---------------------------------------------------------------------

const touches = new Map();
let apart = 0;

function mouse(kind, event, target) {
  const { clientX, clientY } = event;
  target.dispatchEvent(new MouseEvent(kind, { clientX, clientY, bubbles: true, cancelable: true, view: window, buttons: kind === "mouseup" ? 0 : 1 }));
}

function touched(event) {
  if (event.pointerType !== "touch") return;
  const [kind, one] = [event.type, touches.size < 2];
  if (kind === "pointerdown") {
    touches.set(event.pointerId, event);
    if (touches.size === 1) {
      mouse("mouseenter", event, canvas);
      mouse("mousemove", event, canvas);
      // Two frames later, so that the jump from the previous position does not move the map.
      requestAnimationFrame(() => requestAnimationFrame(() => {
        if (touches.size === 1 && touches.has(event.pointerId)) mouse("mousedown", event, canvas);
      }));
    } else {
      mouse("mouseup", event, window);
      apart = 0;
    }
  } else if (kind === "pointermove" && touches.has(event.pointerId)) {
    touches.set(event.pointerId, event);
    if (one) mouse("mousemove", event, canvas);
    else {
      const [a, b] = [...touches.values()];
      const now = Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
      const [clientX, clientY] = [(a.clientX + b.clientX) / 2, (a.clientY + b.clientY) / 2];
      mouse("mousemove", { clientX, clientY }, canvas);
      if (apart) canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: 2.5 * (apart - now), clientX, clientY, bubbles: true, cancelable: true }));
      apart = now;
    }
  } else if (touches.delete(event.pointerId) && one) mouse("mouseup", event, window);
}

for (const kind of ["pointerdown", "pointermove", "pointerup", "pointercancel"]) canvas.addEventListener(kind, touched);

// --- start --------------------------------------------------------------------------------------------------

async function start() {
  const started = performance.now();
  state.textContent = "Loading…";
  const points = await load();
  if (!points.n) {
    state.textContent = "No text fits these filters.";
    return;
  }
  const plot = make(points.n);
  if (plot.isSupported === false) throw new Error("This browser cannot draw the map: it has no WebGL.");
  let lassoed = false;
  plot.subscribe("view", (now) => { view = now.view; place(); if (!tip.hidden) out(); });
  plot.subscribe("pointOver", (index) => over(plot, index, points.at[index]));
  plot.subscribe("pointOut", out);
  plot.subscribe("lassoEnd", ({ coordinates }) => {
    lassoed = true;
    setTimeout(() => { lassoed = false; });
    toggle("lasso", false);
    line = fewer(coordinates);
    place();
    if (line.length < 3) { plot.deselect(); return; }
    list(written(line));
  });
  plot.subscribe("select", async ({ points: chosen }) => {
    document.querySelector("#chosen").textContent = chosen.length.toLocaleString("en");
    // A click on one point opens it; several are a choice.
    if (chosen.length !== 1 || lassoed) return;
    await Promise.resolve();
    if (lassoed) return;
    const said = await about(points.at[chosen[0]]);
    if (said) location.assign(said.link);
  });
  plot.subscribe("deselect", () => { line = []; place(); list(""); });
  await plot.draw({ x: points.x, y: points.y, z: points.z }, { zDataType: "categorical" });

  const area = read(frame.dataset.area);
  if (area.length > 2) {
    lassoed = true;
    line = area;
    plot.lassoSelect(area, { isGl: true });
  }
  const fingers = matchMedia("(pointer: coarse)").matches;
  state.textContent = fingers ? "One finger moves, two zoom; Lasso draws" : "Drag to move, scroll to zoom, hold Shift to draw around points";
  place();

  function toggle(id, on) {
    document.getElementById(id).setAttribute("aria-pressed", on);
    if (id === "lasso") {
      plot.set({ mouseMode: on ? "lasso" : "panZoom" });
      frame.classList.toggle("drawing", on);
    } else frame.classList.toggle("nameless", !on);
  }
  const pressed = (id) => document.getElementById(id).getAttribute("aria-pressed") === "true";
  document.querySelector("#lasso").addEventListener("click", () => toggle("lasso", !pressed("lasso")));
  document.querySelector("#names").addEventListener("click", () => toggle("names", !pressed("names")));
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches || points.n > 200_000;
  const go = (x, y, far) => plot.zoomToLocation([x, y], far, { transition: !calm, transitionDuration: 500 });
  document.querySelector("#whole").addEventListener("click", () => go(0, 0, distance()));
  document.querySelector("#clear").addEventListener("click", (event) => { event.preventDefault(); line = []; plot.deselect(); place(); list(""); });
  document.querySelector("#legend").addEventListener("click", (event) => {
    const group = event.target.closest("button[data-x]");
    if (group) go(+group.dataset.x, +group.dataset.y, 0.35 * distance());
  });
  document.querySelector("#points").addEventListener("click", (event) => {
    const more = event.target.closest("[data-more]");
    if (!more) return;
    event.preventDefault();
    fill(more.getAttribute("href"), false);
  });

  const paint = () => plot.set({ pointColor: rest(), pointColorActive: rest(), pointColorHover: rest(), backgroundColor: ground(), lassoColor: ink() });
  new MutationObserver(paint).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  new ResizeObserver(() => {
    plot.set({ width: frame.clientWidth, height: frame.clientHeight });
    place();
  }).observe(frame);
  frame.dataset.drawn = points.n;
  frame.dataset.took = Math.round(performance.now() - started);
}

start().catch((error) => {
  state.textContent = error.message;
  frame.dataset.failed = error.message;
});
