// Keys, copying, the theme switch and the help. Every page works without them, by its links.

const all = (selector) => [...document.querySelectorAll(selector)];
const first = (selector) => document.querySelector(selector);

function toast(text) {
  const box = first("#toast");
  box.textContent = text;
  box.classList.add("on");
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => box.classList.remove("on"), 5000);
}

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    toast(`Copied ${what}`);
  } catch {
    toast("The browser does not allow copying here");
  }
}

async function copyFrom(url, what) {
  const answer = await fetch(url);
  if (answer.ok) await copy(await answer.text(), what);
  else toast(`Copying failed with status ${answer.status}`);
}

// --- the current row or message -------------------------------------------------------------------------------

function step(by) {
  const items = all("[data-item]");
  if (!items.length) return;
  const now = items.findIndex((item) => item.classList.contains("current"));
  const next = now < 0 ? (by > 0 ? 0 : items.length - 1) : Math.min(items.length - 1, Math.max(0, now + by));
  items.forEach((item, number) => item.classList.toggle("current", number === next));
  items[next].scrollIntoView({ block: items[next].offsetHeight > innerHeight ? "start" : "nearest" });
  if (items[next].id && items[next].matches(".message")) history.replaceState(null, "", `#${items[next].id}`);
}

const current = () => first("[data-item].current");
const follow = (selector, within = document) => within.querySelector(selector)?.click();

const keys = {
  j: () => step(1),
  k: () => step(-1),
  "/": () => { first("#find")?.focus(); first("#find")?.select(); },
  // In a list, that of the current row; on the page of a conversation, that of the page.
  c: () => follow("[data-key=c]", current()?.querySelector("[data-key=c]") ? current() : document),
  "?": () => first("#help").showModal(),
  n: () => follow("[data-key=n]"),
  p: () => follow("[data-key=p]"),
  r: () => follow("[data-key=r]"),
  u: () => follow("[data-key=u]"),
  y: () => follow("[data-key=y]"),
  t: () => follow("#theme"),
  Enter: () => current() && follow("[data-open]", current()),
  o: () => current() && follow("[data-open]", current()),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || first("dialog[open]")) return;
  if (event.target.matches("input, textarea, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.key === "Enter" && event.target.matches("a, button, summary")) return;
  const act = keys[event.key];
  if (act) {
    event.preventDefault();
    act();
  }
});

function switchTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  const next = now === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try { localStorage.setItem("camel-theme", next); } catch { /* storage is blocked, as it may be in a frame */ }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy], [data-copy-from], [data-copy-code], #theme, #help-button, [data-help], [data-close]");
  if (!button) return;
  if (button.dataset.copy !== undefined) copy(new URL(button.dataset.copy, location.href).href, "the link");
  else if (button.dataset.copyFrom) copyFrom(button.dataset.copyFrom, button.dataset.what);
  else if (button.dataset.copyCode !== undefined) copy(button.closest(".code").querySelector("pre").textContent, "the code");
  else if (button.id === "theme") switchTheme();
  else if (button.dataset.close !== undefined) button.closest("dialog").close();
  else first("#help").showModal();
});

// A select with this attribute submits its form when the choice changes.
document.addEventListener("change", (event) => {
  if (event.target.matches("select[data-go]")) event.target.form.requestSubmit();
});

// --- what is loaded after the page: the pulses of a list -----------------------------------------------------------

async function loadPulses() {
  const list = first("[data-pulses]");
  if (!list || list.dataset.loaded) return;
  list.dataset.loaded = "yes";
  const answer = await fetch(list.dataset.pulses);
  if (!answer.ok) return;
  const made = new DOMParser().parseFromString(await answer.text(), "text/html");
  list.querySelectorAll("[data-pulse]").forEach((place) => {
    const pulse = made.getElementById(place.dataset.pulse);
    if (pulse) place.replaceChildren(pulse.firstElementChild);
  });
}
loadPulses();
document.addEventListener("htmx:after:swap", loadPulses);
