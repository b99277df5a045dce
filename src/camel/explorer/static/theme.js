// Before the first paint, so that a page does not flash in the other theme.
document.documentElement.classList.add("js");
try {
  const chosen = localStorage.getItem("camel-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* a page in a frame may not keep anything */ }
