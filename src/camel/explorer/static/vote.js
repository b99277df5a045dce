// Keys for the answers, and a guard: the second click of a double click must not answer the next pair. Every page also
// works without this file; the server makes sure that a vote counts once.

const GUARD = 500;
const form = document.querySelector("#answers");
const born = performance.now();
let sent = false;

form?.addEventListener("submit", (event) => {
  if (sent || performance.now() - born < GUARD) {
    event.preventDefault();
    return;
  }
  sent = true;
  form.classList.add("sent");
  // If the answer does not arrive, it can be sent again.
  setTimeout(() => { sent = false; form.classList.remove("sent"); }, 4000);
});

document.addEventListener("keydown", (event) => {
  if (!form || event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
  if (document.querySelector("dialog[open]") || event.target.matches("input, textarea, select")) return;
  const key = event.key.toLowerCase();
  const button = key.length === 1 && form.querySelector(`[data-answer*="${CSS.escape(key)}"]`);
  if (button) {
    event.preventDefault();
    form.requestSubmit(button);
  }
});

// A page from the browser's cache may show an answer that has changed since.
addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
