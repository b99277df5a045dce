// Stars without a reload, and menus that close. Without this file the form posts and the page comes back.

document.addEventListener("submit", async (event) => {
  const form = event.target.closest("form.star");
  if (!form) return;
  event.preventDefault();
  const button = form.querySelector("button");
  const data = new URLSearchParams(new FormData(form));
  data.set(button.name, button.value);
  // The answer is a redirect to this page, which is here already.
  const answer = await fetch(form.action, { method: "POST", body: data, redirect: "manual" }).catch(() => null);
  if (answer?.type !== "opaqueredirect") return toast("The star could not be stored");
  const on = button.value === "yes";
  button.value = on ? "no" : "yes";
  button.setAttribute("aria-pressed", on);
});

// In a list, the star of the current row; on the page of a conversation, that of the page.
keys.s = () => follow("[data-key=s]", current()?.querySelector("[data-key=s]") ? current() : document);

const closeMenus = (except) => all("details.menu[open]").forEach((menu) => { if (menu !== except) menu.open = false; });
document.addEventListener("click", (event) => closeMenus(event.target.closest("details.menu")));
document.addEventListener("keydown", (event) => { if (event.key === "Escape") closeMenus(); });
