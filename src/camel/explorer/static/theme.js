// Runs before the first paint, so that no page flashes in the other theme.
document.documentElement.classList.add("js");
try {
  const chosen = localStorage.getItem("camel-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* storage is blocked, as it may be in a frame */ }
