// A table: server-sent events become messages. What is being said is put in as text; a finished message comes as HTML of
// the server's own rendering, the same that the page is made of.

const table = document.querySelector("#table");
const messages = document.querySelector("#messages");
const waiting = document.querySelector("#waiting");
const composer = document.querySelector("#composer");
let writing = null;

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

const events = new EventSource(table.dataset.events);
events.addEventListener("message", (event) => keepingPlace(() => {
  drop();
  messages.insertAdjacentHTML("beforeend", JSON.parse(event.data).html);
}));
events.addEventListener("writing", (event) => keepingPlace(() => {
  const piece = JSON.parse(event.data);
  if (piece.from === 0 || !writing) {
    drop();
    writing = element("li", `message ${piece.side} hue-${piece.hue} writing`);
    const head = element("header", "");
    head.append(element("span", "role", piece.role), element("span", "seat", piece.speaker));
    writing.append(head, element("div", "text plain"));
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
  waiting.hidden = now.writing || now.turn;
  if (now.messages) waiting.textContent = "…";
  if (!composer) return;
  const was = composer.dataset.turn === "yes";
  composer.dataset.turn = now.turn ? "yes" : "no";
  document.querySelector("#whose").textContent = now.turn ? "It is your turn." : "Wait for the other one.";
  composer.querySelectorAll("button").forEach((button) => { button.disabled = !now.turn; });
  if (now.turn && !was) document.querySelector("#say").focus();
});
events.addEventListener("ended", () => { events.close(); location.reload(); });
addEventListener("pagehide", () => events.close());

composer?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = event.submitter ?? composer.querySelector("button[value=say]");
  const form = new URLSearchParams(new FormData(composer, button));
  const answer = await fetch(composer.action, { method: "POST", body: form });
  if (answer.ok) {
    if (button.value === "say") document.querySelector("#say").value = "";
  } else {
    document.querySelector("#whose").textContent = "That was not taken: say something, when it is your turn.";
  }
});
document.querySelector("#say")?.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) composer.requestSubmit(composer.querySelector("button[value=say]"));
});
