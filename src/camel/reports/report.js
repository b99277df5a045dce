// The theme, before the first paint: the system's until the reader chooses. Then the buttons and the key for it.
const root = document.documentElement;
const store = (act) => { try { return act(localStorage); } catch { return null; } };
const chosen = store((local) => local.getItem("camel-theme"));
if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
const change = () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  store((local) => local.setItem("camel-theme", root.dataset.theme));
};
document.addEventListener("click", (event) => {
  if (event.target.closest("#theme")) change();
  if (event.target.closest("#print")) print();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "t" && !event.ctrlKey && !event.metaKey && !event.altKey) change();
});
// A link to something folded unfolds it.
addEventListener("hashchange", () => { const one = document.getElementById(decodeURIComponent(location.hash.slice(1))); if (one?.localName === "details") one.open = true; });
// Where the explorer serves the report, the run and its conversations have pages.
const served = location.pathname.match(/^\/reports\/([^/]+)\//)?.[1];
if (served && served !== "-") addEventListener("DOMContentLoaded", () => {
  for (const one of document.querySelectorAll("[data-run]")) one.href = `/run/${served}`;
  for (const one of document.querySelectorAll("[data-id]")) one.href = `/conversation/${served}?id=${encodeURIComponent(one.dataset.id)}`;
});
