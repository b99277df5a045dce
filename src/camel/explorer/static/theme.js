// Before the first paint, so that a page does not flash in the other theme.
const chosen = localStorage.getItem("camel-theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
document.documentElement.classList.add("js");
