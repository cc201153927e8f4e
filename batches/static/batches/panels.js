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
    if (event.target.closest("[data-copy-page]")) {
      document.dispatchEvent(new CustomEvent("copytext", { detail: { text: address.href, words: "Address copied" } }));
      return;
    }
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

  const address = document.getElementById("drawer-page");

  function openDrawer(link) {
    document.getElementById("drawer-title").textContent = link.dataset.drawer || link.textContent.trim();
    address.href = link.href;
    body.replaceChildren(words("Loading…"));
    body.setAttribute("aria-busy", "true");
    if (!drawer.open) { drawer.showModal(); body.focus(); }
    htmx.ajax("GET", link.href, { target: body, select: "[data-panel]", swap: "innerHTML" }).then(() => {
      body.removeAttribute("aria-busy");
      if (body.querySelector("[data-panel]")) body.scrollTop = 0;
      else if (!body.textContent.trim()) location.href = link.href; // signed out, or a page that has no panel
    });
  }

  // What the focus was on is gone: a page beside this one took the place of another.
  document.addEventListener("htmx:afterSettle", (event) => {
    if (event.detail.target === body && drawer.open && !drawer.contains(document.activeElement)) body.focus();
  });

  // Escape first leaves a field with words in it.
  drawer?.addEventListener("cancel", (event) => {
    const field = document.activeElement;
    if (!drawer.contains(field) || !field.matches("textarea, input") || !field.value) return;
    event.preventDefault();
    body.focus();
  });

  // The browser gives the focus back to what it was on; after `]` that is the row of another page than the last shown.
  drawer?.addEventListener("close", () => {
    [...document.querySelectorAll("main a[data-drawer]")].find((link) => link.href === address.href)?.focus();
  });

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

  // A toast under the drawer would be seen by nobody.
  function say(text) {
    const place = drawer?.open ? document.getElementById("drawer-said") : null;
    if (!place) { toast(text); return; }
    place.textContent = text;
    setTimeout(() => { if (place.textContent === text) place.textContent = ""; }, 4000);
  }

  // --- copying ---

  async function copy(text) {
    if (navigator.clipboard) { await navigator.clipboard.writeText(text); return; }
    const field = document.createElement("textarea"); // an address without HTTPS has no clipboard
    field.value = text;
    field.className = "unseen";
    (document.querySelector("dialog[open]") ?? document.body).append(field);
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
    copy(detail.text).then(() => say(`${detail.words}.`), () => say(`The browser refused to copy: ${detail.text}`));
  });
})();
