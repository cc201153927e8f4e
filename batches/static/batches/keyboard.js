// The keyboard: one list of keys, of which a page offers those that find something to act on. `?` shows exactly these.
// A page gives a key to one of its own elements by `data-key="v" data-key-words="Versions"`; nothing is written here.
(() => {
  "use strict";
  const JUMP_MS = 1500; // how long `g` waits for its second letter
  const OFF = "relaypdf-keys-off";

  // While a page of ours lies beside this one, keys are about that one.
  const drawer = () => document.querySelector("#drawer[open]");
  const find = (selector) => [...(drawer() ?? document).querySelectorAll(selector)].filter((element) => element.checkVisibility());
  const first = (selector) => find(selector)[0];
  const rows = () => find("main .row-link");
  const row = () => document.activeElement?.closest("tr, li");

  function step(direction) {
    const links = rows();
    if (!links.length) return;
    const now = links.indexOf(document.activeElement);
    const next = now < 0 ? (direction > 0 ? 0 : links.length - 1) : now + direction;
    links[Math.max(0, Math.min(links.length - 1, next))].focus();
  }

  // The file of the row, where there are rows; else that of the page.
  function keep() { (rows().length ? row()?.querySelector("[data-pdf]") : first("[data-pdf]"))?.click(); }

  const turn = (direction) => first(`[rel=${direction < 0 ? "prev" : "next"}]`) ?? besides(direction);

  // Next to the row that the drawer shows, where the page in it names no neighbour.
  function besides(direction) {
    if (!drawer()) return undefined;
    const links = [...document.querySelectorAll("main .row-link[data-drawer]")];
    const now = links.findIndex((link) => link.href === document.getElementById("drawer-page").href);
    return now < 0 ? undefined : links[now + direction];
  }

  const openPage = () => (drawer() ? document.getElementById("drawer-page") : row()?.querySelector(".row-link"))?.href;

  function tick() {
    const box = row()?.querySelector("input.tick") ?? first("input.tick");
    box?.click();
  }

  // `works` says whether the key does anything on this page, `does` does it.
  const KEYS = [
    { key: "/", words: "Search", works: () => first("[data-search]"), does: () => first("[data-search]").focus() },
    { key: "j", words: "Next row", works: () => rows().length, does: () => step(1) },
    { key: "k", words: "Row before", works: () => rows().length, does: () => step(-1) },
    { key: "Enter", words: "Open the row, beside the list where it can be", works: () => rows().length },
    { key: "x", words: "Tick the row", works: () => first("input.tick"), does: tick },
    { key: "o", words: "Open as a page", works: () => drawer() || first("main .row-link[data-drawer]"), does: () => { const url = openPage(); if (url) location.href = url; } },
    { key: "d", words: "Download the PDF", works: () => first("[data-pdf]"), does: keep },
    { key: "[", words: "Back: the page or document before", works: () => turn(-1), does: () => turn(-1).click() },
    { key: "]", words: "On: the next page or document", works: () => turn(1), does: () => turn(1).click() },
    { key: "n", get words() { return first("[data-new]")?.textContent.trim() ?? "New batch"; }, works: () => !drawer() && newUrl(), does: () => { location.href = newUrl(); } },
    { key: "r", words: "Refresh the page", works: () => !drawer() && isFreeOfAnswers(), does: () => location.reload() },
    { key: "y", words: "Copy the address of this page", works: () => true, does: copyAddress },
  ];

  const newUrl = () => document.querySelector("[data-new]")?.href ?? document.body.dataset.newUrl ?? "";

  // What answered a form would be sent again.
  function isFreeOfAnswers() { return !document.querySelector("form[data-start], .problem.failed"); }

  function copyAddress() {
    document.dispatchEvent(new CustomEvent("copytext", { detail: { text: drawer() ? document.getElementById("drawer-page").href : location.href, words: "Address copied" } }));
  }

  const ofThePage = () => find("[data-key]").map((element) => ({
    key: element.dataset.key,
    words: element.dataset.keyWords ?? element.textContent.trim(),
    does: () => reach(element),
  }));

  function reach(element) {
    if (element.matches("a[href], button, summary")) { element.focus(); element.click(); return; }
    if (!element.matches("input, select, textarea, [tabindex]")) element.tabIndex = -1;
    element.scrollIntoView({ block: "start" });
    element.focus({ preventScroll: true });
  }

  const here = () => [...KEYS.filter((each) => each.works()), ...ofThePage()];
  const jumps = () => [...document.querySelectorAll(".topnav [data-jump]")];

  // --- the list that `?` shows ---

  function line(keys, words) {
    const names = keys.map((key) => { const name = document.createElement("kbd"); name.textContent = key; return name; });
    const pair = document.createElement("div"), term = document.createElement("dt"), meaning = document.createElement("dd");
    names.forEach((name, n) => term.append(n ? " " : "", name));
    meaning.textContent = words;
    pair.append(term, meaning);
    return pair;
  }

  function show() {
    const dialog = document.getElementById("keys");
    dialog.querySelector("[data-keys]").replaceChildren(
      ...here().map(({ key, words }) => line([key], words)),
      ...jumps().map((link) => line(["g", link.dataset.jump], `Go to ${link.textContent.trim()}`)),
      line(["Ctrl", "Enter"], "Confirm what a dialog or a plan asks"),
      line(["Esc"], "Close, leave a field"),
      line(["?"], "This list"),
    );
    if (!dialog.open) dialog.showModal();
  }

  const stored = { // a browser may refuse its storage
    get isOff() { try { return localStorage.getItem(OFF) === "yes"; } catch { return false; } },
    set isOff(off) { try { if (off) localStorage.setItem(OFF, "yes"); else localStorage.removeItem(OFF); } catch { /* for this page only */ } },
  };
  let isOff = stored.isOff;

  // --- what is pressed ---

  const typing = (element) => element.matches?.("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]");
  let jumpUntil = 0;

  document.addEventListener("keydown", (event) => {
    const open = [...document.querySelectorAll("dialog[open]")].at(-1);
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      (open ?? document).querySelector("form[data-confirm]")?.requestSubmit();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.key === "Escape") {
      document.querySelectorAll("details.menu[open]").forEach((menu) => { menu.open = false; menu.querySelector("summary").focus(); });
      if (typing(event.target) && !open) event.target.blur();
      return;
    }
    if (isOff || (open && open !== drawer()) || typing(event.target) || !document.getElementById("keys")) return;
    const isJump = event.timeStamp < jumpUntil;
    jumpUntil = 0;
    const target = isJump && jumps().find((link) => link.dataset.jump === event.key);
    if (target) {
      event.preventDefault();
      location.href = target.href;
    } else if (event.key === "g") {
      jumpUntil = event.timeStamp + JUMP_MS;
    } else if (event.key === "?") {
      event.preventDefault();
      show();
    } else {
      const action = here().find((each) => each.key === event.key && each.does);
      if (!action) return;
      event.preventDefault();
      action.does();
    }
  });

  document.addEventListener("click", (event) => { if (event.target.closest("[data-dialog=keys]")) show(); });
  const box = document.querySelector("[data-keys-on]");
  if (box) {
    box.checked = !isOff;
    box.addEventListener("change", () => { isOff = !box.checked; stored.isOff = isOff; });
  }
})();
