// What opens over a page and what it says in passing: dialogs, the drawer, toasts, copying. A link that opens one leads to
// a page of its own where there are no scripts.
(() => {
  "use strict";

  const plain = (event) => event.button === 0 && !(event.ctrlKey || event.metaKey || event.shiftKey || event.altKey);

  document.addEventListener("click", (event) => {
    const opener = event.target.closest("[data-dialog]");
    if (opener && plain(event)) {
      const dialog = document.getElementById(opener.dataset.dialog);
      if (dialog && !dialog.open) { event.preventDefault(); dialog.showModal(); }
      return;
    }
    const link = event.target.closest("a[data-drawer]");
    if (link && plain(event)) { event.preventDefault(); openDrawer(link); return; }
    if (event.target.closest("[data-dismiss]")) { event.target.closest(".toast").remove(); return; }
    if (event.target.closest("[data-close]")) { event.target.closest("dialog").close(); return; }
    const copier = event.target.closest("[data-copy]");
    if (copier) copyOf(copier);
    if (event.target.matches("dialog[open]") && isOutside(event)) event.target.close();
  });

  function isOutside(event) {
    const box = event.target.getBoundingClientRect();
    return event.clientX < box.left || event.clientX > box.right || event.clientY < box.top || event.clientY > box.bottom;
  }

  // --- the drawer: the [data-panel] of another page of ours, beside this one ---

  const drawer = document.getElementById("drawer");
  const body = document.getElementById("drawer-body");

  function openDrawer(link) {
    document.getElementById("drawer-title").textContent = link.dataset.drawer || link.textContent.trim();
    document.getElementById("drawer-page").href = link.href;
    body.replaceChildren(words("Loading…"));
    body.setAttribute("aria-busy", "true");
    if (!drawer.open) drawer.showModal();
    htmx.ajax("GET", link.href, { target: body, select: "[data-panel]", swap: "innerHTML" }).then(() => {
      body.removeAttribute("aria-busy");
      if (body.querySelector("[data-panel]")) body.scrollTop = 0;
      else if (!body.textContent.trim()) location.href = link.href; // signed out, or a page that has no panel
    });
  }

  function words(text) {
    const paragraph = document.createElement("p");
    paragraph.className = "muted";
    paragraph.textContent = text;
    return paragraph;
  }

  for (const failure of ["htmx:responseError", "htmx:sendError"]) {
    document.addEventListener(failure, (event) => {
      if (event.detail.target !== body) return;
      body.replaceChildren(words("It could not be loaded: the server did not answer as it should. “Open as a page” tries it by itself."));
    });
  }

  // --- toasts: stay until somebody dismisses them ---

  function toast(text) {
    const place = document.getElementById("toasts");
    if (!place) return;
    const box = document.createElement("div"), said = document.createElement("p"), close = document.createElement("button");
    box.className = "toast";
    said.textContent = text;
    Object.assign(close, { type: "button", className: "btn quiet small", textContent: "Dismiss" });
    close.dataset.dismiss = "";
    box.append(said, close);
    place.querySelectorAll(".toast.passing").forEach((old) => old.remove());
    box.classList.add("passing");
    place.append(box);
  }

  // --- copying ---

  async function copy(text) {
    if (navigator.clipboard) { await navigator.clipboard.writeText(text); return; }
    const field = document.createElement("textarea"); // an address without HTTPS has no clipboard
    field.value = text;
    field.className = "unseen";
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    if (!done) throw new Error("refused");
  }

  function copyOf(button) {
    const from = button.dataset.copy ? document.getElementById(button.dataset.copy) : button.parentElement.querySelector("code, pre");
    const label = button.querySelector("[data-copy-words]") ?? button;
    const before = label.textContent;
    copy(from.textContent.trim()).then(() => "Copied", () => "Not copied").then((said) => {
      label.textContent = said;
      document.getElementById("announce").textContent = said;
      setTimeout(() => { label.textContent = before; }, 2000);
    });
  }

  document.addEventListener("copytext", ({ detail }) => {
    copy(detail.text).then(() => toast(`${detail.words}.`), () => toast(`The browser refused to copy: ${detail.text}`));
  });
})();
