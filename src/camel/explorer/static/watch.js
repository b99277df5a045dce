// The live page of a run: server-sent events become rows and figures. Text is only ever inserted as text.

const box = document.querySelector("#watch");
const most = 24;
const svg = "http://www.w3.org/2000/svg";

function element(name, classes = "", text = "") {
  const made = document.createElement(name);
  if (classes) made.className = classes;
  if (text) made.textContent = text;
  return made;
}

const words = (name) => name.replaceAll("_", " ");
const number = (value) => value.toLocaleString("en");

function lane(said) {
  const lanes = document.querySelector("#lanes");
  const id = `lane-${said.key}`;
  const old = document.getElementById(id);
  const made = element("tr", "lane");
  made.id = id;
  const title = element("td");
  title.append(element("div", "", said.title || said.id), element("div", "tiny faint mono", said.id));
  const last = element("td", "last");
  last.append(element("b", `who ${said.css}`, said.who), " ", element("span", "said", said.text));
  made.append(title, last, element("td", "num", number(said.replies)), element("td", "num m-hide", number(said.tokens)));
  // A row keeps its place while its conversation continues; only new ones move the others.
  if (old) old.replaceWith(made);
  else lanes.prepend(made);
  while (lanes.children.length > most) lanes.lastElementChild.remove();
  document.querySelector("#quiet").hidden = true;
}

function table(selector, rows) {
  const body = rows.map(([name, count, css, sign]) => {
    const row = element("tr");
    const head = element("th");
    head.scope = "row";
    if (css) {
      const key = element("span", `key ${css}`);
      key.append(document.querySelector(`[data-sign="${sign}"]`).firstElementChild.cloneNode(true));
      head.append(key);
    }
    head.append(name);
    const cell = element("td", "num");
    cell.append(element("b", "", number(count)));
    row.append(head, cell);
    return row;
  });
  if (!body.length) {
    const row = element("tr");
    row.append(element("td", "faint", "none"));
    body.push(row);
  }
  document.querySelector(selector).replaceChildren(...body);
}

function bar(share) {
  const drawn = document.createElementNS(svg, "svg");
  drawn.setAttribute("class", "progress");
  drawn.setAttribute("viewBox", "0 0 100 4");
  drawn.setAttribute("preserveAspectRatio", "none");
  for (const [kind, width] of [["bg", 100], ["fg", share]]) {
    const part = document.createElementNS(svg, "rect");
    part.setAttribute("class", kind);
    part.setAttribute("width", width);
    part.setAttribute("height", 4);
    drawn.append(part);
  }
  return drawn;
}

function totals(now) {
  const state = document.querySelector("#state");
  state.textContent = now.state;
  state.className = now.working ? "working" : "";
  document.querySelector("#why").textContent = now.why;
  document.querySelector("#quiet").textContent = now.quiet;
  const control = document.querySelector("#control");
  if (control) {
    control.hidden = !now.can.length;
    control.querySelectorAll("button").forEach((one) => { one.hidden = !now.can.includes(one.value); });
  }
  document.querySelector("#figures").replaceChildren(...now.figures.map(([name, figure]) => {
    const cell = element("div", "stat");
    cell.append(element("b", "", figure), element("span", "", name));
    return cell;
  }));
  document.querySelector("#stages").replaceChildren(...now.stages.map((stage) => {
    const part = element("div", "stage");
    const line = element("div", "small");
    const failed = stage.failed ? `, ${number(stage.failed)} failed` : "";
    line.append(element("b", "", words(stage.name)), " ", element("span", "soft", `${number(stage.finished)} of ${number(stage.planned)}${failed}`));
    part.append(line, bar((100 * stage.finished) / (stage.planned || 1)));
    return part;
  }));
  table("#stops", now.stops.map(([title, css, sign, count]) => [title, count, css, sign]));
  table("#errors", now.errors);
}

const events = new EventSource(box.dataset.events);
events.addEventListener("state", (event) => {
  const now = JSON.parse(event.data);
  document.querySelector("#lanes").replaceChildren();
  now.lanes.reverse().forEach((said) => lane(said));
  totals(now.totals);
});
events.addEventListener("said", (event) => lane(JSON.parse(event.data)));
events.addEventListener("totals", (event) => totals(JSON.parse(event.data)));
events.addEventListener("ended", (event) => {
  const { prefix } = JSON.parse(event.data);
  document.querySelectorAll("#lanes > .lane").forEach((one) => one.id.startsWith(`lane-${prefix}`) && one.remove());
  document.querySelector("#quiet").hidden = document.querySelector("#lanes").children.length > 0;
});
events.addEventListener("closed", () => { events.close(); location.reload(); });
addEventListener("pagehide", () => events.close());
