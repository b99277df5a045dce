// The search field of a site: rows without the words are hidden. Nothing is fetched.
const find = document.querySelector("#find");
const rows = [...document.querySelectorAll("[data-item]")].map((row) => [row, row.textContent.toLowerCase()]);
find?.addEventListener("input", () => {
  const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const [row, text] of rows) {
    row.hidden = !words.every((word) => text.includes(word));
    row.toggleAttribute("data-item", !row.hidden);
    shown += !row.hidden;
  }
  const count = document.querySelector("#count");
  count.textContent = words.length ? `${shown.toLocaleString("en")} of ${count.dataset.total}` : count.dataset.summary;
});
