// The live view: server-sent events become lanes and figures. Text is only ever put in as text.

const box = document.querySelector("#watch");
const most = 24;

function element(name, classes = "", text = "") {
  const made = document.createElement(name);
  if (classes) made.className = classes;
  if (text) made.textContent = text;
  return made;
}

const words = (name) => name.replaceAll("_", " ");
const number = (value) => value.toLocaleString("en");

function lane(said, fresh) {
  const lanes = document.querySelector("#lanes");
  const id = `lane-${said.key}`;
  const old = document.getElementById(id);
  const made = element("article", `lane hue-${said.hue}${fresh ? " new" : ""}`);
  made.id = id;
  const head = element("div");
  head.append(element("b", "role", said.who || said.title), " ", element("span", "faint", `${said.id} · ${said.replies}`));
  if (said.done) head.append(" ", element("span", "badge good", "done"));
  made.append(head, element("p", "said", said.text));
  // A lane keeps its place while it talks: only new ones move the others.
  if (old) old.replaceWith(made);
  else lanes.prepend(made);
  while (lanes.children.length > most) lanes.lastElementChild.remove();
  document.querySelector("#quiet").hidden = true;
}

function table(selector, rows, none) {
  const body = rows.map(([name, count]) => {
    const row = element("tr");
    row.append(element("td", "", name), element("td", "number", number(count)));
    return row;
  });
  if (!body.length && none) {
    const row = element("tr");
    row.append(element("td", "soft", none));
    body.push(row);
  }
  document.querySelector(selector).replaceChildren(...body);
}

function totals(now) {
  const state = document.querySelector("#state");
  state.textContent = now.state;
  state.className = `badge${now.working ? " live" : ""}`;
  document.querySelector("#why").textContent = now.why;
  document.querySelector("#quiet").textContent = now.quiet;
  const control = document.querySelector("#control");
  if (control) {
    control.hidden = !now.can.length;
    control.querySelectorAll("button").forEach((one) => { one.hidden = !now.can.includes(one.value); });
  }
  document.querySelector("#figures").replaceChildren(...now.figures.map(([name, figure]) => {
    const cell = element("div");
    cell.append(element("b", "", figure), element("span", "", name));
    return cell;
  }));
  document.querySelector("#stages").replaceChildren(...now.stages.map((stage) => {
    const part = element("div", "stage");
    const line = element("div", "small");
    const failed = stage.failed ? `, ${number(stage.failed)} failed` : "";
    line.append(element("b", "", words(stage.name)), " ", element("span", "soft number", `${number(stage.finished)} of ${number(stage.planned)}${failed}`));
    const bar = element("progress");
    bar.max = stage.planned || 1;
    bar.value = stage.finished;
    part.append(line, bar);
    return part;
  }));
  table("#stops", now.stops.map(([name, count]) => [words(name), count]), "none yet");
  table("#errors", now.errors, "none");
}

const events = new EventSource(box.dataset.events);
events.addEventListener("state", (event) => {
  const now = JSON.parse(event.data);
  document.querySelector("#lanes").replaceChildren();
  now.lanes.reverse().forEach((said) => lane(said, false));
  totals(now.totals);
});
events.addEventListener("said", (event) => lane(JSON.parse(event.data), true));
events.addEventListener("totals", (event) => totals(JSON.parse(event.data)));
events.addEventListener("ended", (event) => {
  const { prefix } = JSON.parse(event.data);
  document.querySelectorAll("#lanes > .lane").forEach((one) => one.id.startsWith(`lane-${prefix}`) && one.remove());
  document.querySelector("#quiet").hidden = document.querySelector("#lanes").children.length > 0;
});
events.addEventListener("closed", () => { events.close(); location.reload(); });
addEventListener("pagehide", () => events.close());
