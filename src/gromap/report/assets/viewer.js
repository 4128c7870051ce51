"use strict";
// The page: modes, probe, tabs, minima and theme, around the two views.

const byId = (id) => document.getElementById(id);
const facts = JSON.parse(byId("facts").textContent);
const root = document.documentElement;
const SIDES = ["source", "target"];
const percent = (share) => (share > 0 && share < 0.0005 ? "< 0.05 %" : (100 * share).toFixed(1) + " %");

const state = { mode: Object.keys(facts.modes)[0], minimum: null, probe: null, before: null, asked: 0 };
let views = [];
let pose = null;

async function texture() {
  const [pixels, [height, width]] = await Promise.all([block("texture"), block("texture-size")]);
  return { pixels, height, width };
}

// Paint both shapes as the state says. What was asked for last wins, whenever its arrays arrive.
async function show() {
  const asked = ++state.asked;
  const { mode, minimum, probe } = state;
  const looks = await Promise.all(
    SIDES.map(async (side, s) => {
      if (probe && s === 1 - probe.side) return { colors: heat(probe.shares, probe.best, facts.ramp) };
      if (minimum !== null && s === 1) return { colors: await block("minimum-" + minimum) };
      const colors = await block(`${side}-${mode}`);
      const clothed = mode === "texture" && hasBlock(side + "-uv");
      return clothed ? { colors, uv: await block(side + "-uv"), image: await texture() } : { colors };
    }),
  );
  if (asked !== state.asked) return;
  looks.forEach(({ colors, uv, image }, s) => views[s].paint(colors, uv, image));
  views.forEach((view, s) => view.mark(probe ? (s === probe.side ? probe.index : probe.best) : null));
  legend();
}

function legend() {
  const { note, ramp, swatches } = facts.modes[state.mode];
  const text = document.createElement("span");
  const parts = [text];
  const bar = (low, high) => {
    const colors = facts.ramp.map((rgb) => `rgb(${rgb.join(" ")})`).join(", ");
    const span = document.createElement("span");
    const strip = document.createElement("i");
    span.className = "ramp";
    strip.style.background = `linear-gradient(to right, ${colors})`;
    span.append(low, strip, high);
    parts.push(span);
  };
  if (state.probe) {
    text.textContent = `Mass of ${SIDES[state.probe.side]} vertex ${state.probe.index} on the other shape, log scale.`;
    bar("1/1000 of the peak", "peak");
  } else if (state.minimum !== null) {
    text.textContent = `Colors of the source, carried to the target by minimum ${state.minimum + 1}.`;
  } else {
    text.textContent = note;
    if (ramp) bar(...ramp);
    for (const [name, color] of swatches) {
      const span = document.createElement("span");
      const patch = document.createElement("i");
      span.className = "swatch";
      patch.style.background = color;
      span.append(patch, name);
      parts.push(span);
    }
  }
  byId("legend").replaceChildren(...parts);
}

async function probe(side, index) {
  const counts = views.map((view) => view.points.length / 3);
  const shares = await conditional(side, index, counts, facts.factors);
  const other = views[1 - side];
  const found = summary(shares, other.points, other.side.diagonal);
  if (!found) {
    say(`The plan gives no mass to ${SIDES[side]} vertex ${index}.`);
    return;
  }
  chooseMinimum(null);
  state.probe = { side, index, shares, ...found };
  await readout(state.probe);
  await show();
}

async function readout(found) {
  const { side, index, best, mass, share, near, spread, points } = found;
  const about = points < 100 ? points.toPrecision(3) : Math.round(points).toLocaleString("en");
  const rows = [
    ["Vertex", `${SIDES[side]} ${index}`],
    ...(hasBlock(SIDES[side] + "-kept") ? [["Matched", `${percent((await block(SIDES[side] + "-kept"))[index])} of its weight`]] : []),
    ["Best match", `${SIDES[1 - side]} ${best}, ${percent(share)} of the mass`],
    [`Within ${100 * NEAR} % of it`, `${percent(near)} of the mass`],
    ["Spread", `${(100 * spread).toFixed(2)} % of the diagonal, about ${about} points`],
  ];
  if (side === 0 && hasBlock("error")) rows.push(["Error", (await block("error"))[index].toPrecision(4) + facts.errorUnit]);
  if (!facts.factors) rows.push(["In the file", `its largest entries, ${percent(mass)} of the mass`]);
  const table = document.createElement("table");
  for (const [name, value] of rows) {
    const row = table.insertRow();
    const head = document.createElement("th");
    head.scope = "row";
    head.textContent = name;
    row.append(head);
    row.insertCell().textContent = value;
  }
  byId("readout").replaceChildren(table);
  byId("probe-side").value = side;
  byId("probe-index").value = index;
  byId("clear").disabled = false;
}

function say(words) {
  const hint = document.createElement("p");
  hint.className = "hint";
  hint.textContent = words;
  byId("readout").replaceChildren(hint);
}

function clear() {
  state.probe = null;
  say("Click a point on either shape to see where the plan sends its mass.");
  byId("clear").disabled = true;
  show();
}

function chooseMinimum(k) {
  state.minimum = k;
  for (const each of document.querySelectorAll("[data-minimum]")) {
    const chosen = Number(each.dataset.minimum) === k;
    each.classList.toggle("chosen", chosen);
    if (each.tagName === "BUTTON") each.setAttribute("aria-pressed", chosen);
  }
}

function chooseMode(mode) {
  state.mode = mode;
  byId("mode-" + mode).checked = true;
  chooseMinimum(null);
}

function toggleMinimum(k) {
  const again = state.minimum === k;
  clear();
  chooseMode("colors");
  chooseMinimum(again ? null : k);
  show();
}

function setUpModes() {
  for (const [key, { name }] of Object.entries(facts.modes)) {
    const label = document.createElement("label");
    const input = document.createElement("input");
    Object.assign(input, { type: "radio", name: "mode", value: key, id: "mode-" + key, checked: key === state.mode });
    input.addEventListener("change", () => {
      clear();
      chooseMode(key);
      show();
    });
    label.append(input, name);
    byId("modes").append(label);
  }
}

function setUpTabs() {
  const tabs = [...document.querySelectorAll('[role="tab"]:not([hidden])')];
  const choose = (tab) => {
    for (const each of tabs) {
      each.setAttribute("aria-selected", each === tab);
      each.tabIndex = each === tab ? 0 : -1;
      byId(each.getAttribute("aria-controls")).hidden = each !== tab;
    }
  };
  tabs.forEach((tab, k) => {
    tab.addEventListener("click", () => choose(tab));
    tab.addEventListener("keydown", ({ key }) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
      if (!step) return;
      const next = tabs[(k + step + tabs.length) % tabs.length];
      next.focus();
      choose(next);
    });
  });
}

function setUpTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const set = (theme) => {
    root.dataset.theme = theme;
    byId("theme").textContent = theme === "dark" ? "Light" : "Dark";
  };
  set(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => set(dark.matches ? "dark" : "light"));
  byId("theme").addEventListener("click", () => set(root.dataset.theme === "dark" ? "light" : "dark"));
}

function setUpControls() {
  byId("reset").addEventListener("click", () => pose.reset());
  byId("roll").addEventListener("click", () => pose.rollOver());
  byId("clear").addEventListener("click", clear);
  document.addEventListener("keydown", ({ key }) => key === "Escape" && state.probe && clear());
  byId("probe-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const side = Number(byId("probe-side").value);
    const index = Number(byId("probe-index").value);
    const count = views[side].points.length / 3;
    if (byId("probe-index").value !== "" && index < count) probe(side, index);
    else say(`The ${SIDES[side]} has vertices 0 to ${count - 1}.`);
  });
  for (const each of document.querySelectorAll("[data-minimum]")) {
    const k = Number(each.dataset.minimum);
    if (!hasBlock("minimum-" + k)) continue;
    each.classList.add("painted");
    each.addEventListener("click", () => toggleMinimum(k));
  }
}

async function setUpViews() {
  pose = new Pose(facts.yaw);
  const figures = [...document.querySelectorAll(".view")];
  const parts = (side) => ["points", "faces", "kept"].map((what) => side + "-" + what).filter(hasBlock);
  const shapes = await Promise.all(SIDES.map((side) => Promise.all(parts(side).map(block))));
  views = figures.map((figure, s) => {
    const canvas = figure.querySelector("canvas");
    figure.querySelector("figcaption").textContent = facts.sides[s].caption;
    canvas.setAttribute("role", "application");
    const keys = "Arrow keys turn both shapes, plus and minus enlarge, 0 resets, Enter picks the point in the middle.";
    canvas.setAttribute("aria-label", `${facts.sides[s].caption}. ${keys}`);
    canvas.addEventListener("webglcontextlost", () => fail("The graphics driver took the picture away: reload the page."));
    return new View(canvas, facts.sides[s], pose, ...shapes[s]);
  });
  const clicked = (view, index) => {
    state.before = state.probe;
    if (index === null) clear();
    else probe(views.indexOf(view), index);
  };
  const restored = () => {
    state.probe = state.before;
    if (state.probe) readout(state.probe).then(show);
    else clear();
  };
  views.forEach((view) => handle(view, pose, clicked, restored));
  setUpTools(views, facts.lines);
}

function fail(words) {
  root.dataset.state = "failed";
  byId("notice").textContent = words;
}

async function main() {
  setUpTheme();
  setUpTabs();
  if (!window.DecompressionStream) return fail("This browser cannot unpack the shapes: open the page in one of 2023 or later.");
  if (!document.createElement("canvas").getContext("webgl2")) {
    return fail("This browser has no WebGL 2, or it is switched off: open the page in another browser, or allow hardware acceleration.");
  }
  await setUpViews();
  setUpModes();
  setUpControls();
  await show();
  root.dataset.state = "drawn";
  views.forEach((view) => view.draw());
  root.dataset.drawn = Math.round(performance.now());
  await Promise.all((facts.factors ? ["q", "k", "u", "v"] : []).map(block)); // so that the first click answers at once
  root.dataset.state = "ready";
}

main().catch((error) => {
  fail(`The shapes could not be drawn: ${error.message}`);
  console.error(error);
});
