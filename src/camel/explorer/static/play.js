// A room: server-sent events become messages. Text that is being written is inserted as text; a finished message comes as
// HTML that the server rendered, the same as that of the page.

const room = document.querySelector("#room");
const messages = document.querySelector("#messages");
const waiting = document.querySelector("#waiting");
const composer = document.querySelector("#composer");
let writing = null;
let since = Date.now();
let next = "";
let shown = null;

function element(name, classes, text = "") {
  const made = document.createElement(name);
  made.className = classes;
  made.textContent = text;
  return made;
}

const atEnd = () => innerHeight + scrollY > document.documentElement.scrollHeight - 160;

function keepingPlace(change) {
  const follow = atEnd();
  change();
  if (follow) scrollTo({ top: document.documentElement.scrollHeight });
}

function drop() {
  writing?.remove();
  writing = null;
}

const events = new EventSource(room.dataset.events);
events.addEventListener("message", (event) => keepingPlace(() => {
  const made = JSON.parse(event.data);
  drop();
  since = Date.now();
  messages.insertAdjacentHTML("beforeend", made.html);
  const score = document.querySelector("#score");
  score.hidden = false;
  score.innerHTML = made.score;
}));
events.addEventListener("writing", (event) => keepingPlace(() => {
  const piece = JSON.parse(event.data);
  if (piece.from === 0 || !writing) {
    drop();
    writing = element("li", `message ${piece.css} writing`);
    const by = element("div", "by");
    by.append(element("span", `who ${piece.css}`, piece.role), element("span", "no", piece.speaker));
    const body = element("div", "body");
    body.append(element("div", "text plain"));
    writing.append(by, body, element("div", "notes"));
    messages.append(writing);
  }
  writing.querySelector(".text").append(piece.text || piece.note);
}));
events.addEventListener("state", (event) => {
  const now = JSON.parse(event.data);
  document.querySelector("#task").textContent = now.task;
  document.querySelector("#idea").hidden = !now.specified;
  document.querySelector("#count").textContent = `${now.messages} ${now.messages === 1 ? "message" : "messages"}`;
  document.querySelector("#tokens").textContent = `${now.tokens.toLocaleString("en")} tokens`;
  if (now.turn) drop();
  next = now.next;
  waiting.hidden = now.writing || now.turn;
  if (!composer) return;
  const was = composer.dataset.turn === "yes";
  composer.dataset.turn = now.turn ? "yes" : "no";
  const proposals = document.querySelector("#proposals");
  if (proposals && now.proposals !== shown) proposals.innerHTML = shown = now.proposals;
  document.querySelector("#whose").textContent = now.turn ? "It is your turn." : proposals ? "Wait for the proposals." : "Wait for the other agent.";
  composer.querySelectorAll("button").forEach((button) => { button.disabled = !now.turn; });
  if (now.turn && !was) composer.querySelector("[name=proposal], #say").focus();
});
events.addEventListener("ended", () => { events.close(); location.reload(); });
addEventListener("pagehide", () => events.close());

setInterval(() => {
  if (!waiting.hidden && next) document.querySelector("#waits").textContent = `${next} is writing, ${Math.round((Date.now() - since) / 1000)} s`;
}, 1000);

composer?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = event.submitter ?? composer.querySelector("button.main");
  const form = new URLSearchParams(new FormData(composer, button));
  const answer = await fetch(composer.action, { method: "POST", body: form });
  if (answer.ok) {
    if (button.value !== "hand") document.querySelector("#say").value = "";
  } else {
    document.querySelector("#whose").textContent = composer.querySelector("#proposals") ? "Not sent: select one of the proposals, and write what to change." : "Not sent: write something when it is your turn.";
  }
});
document.querySelector("#say")?.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) composer.requestSubmit(composer.querySelector("button.main"));
});
