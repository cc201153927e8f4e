// Keeps a page live by asking for what changed. Rows change in place and never move; what would push rows down waits
// while the pointer or the keyboard is among them. Asks nothing while the tab is hidden, and stops when all has ended.
(() => {
  "use strict";
  const LOST_AFTER = 3; // answers in a row that did not come

  const marker = () => document.getElementById("live");
  const matching = document.getElementById("list-changed")?.dataset.matching;
  const held = new Map(); // id -> fragment that waits until it can be put in without disturbing anybody
  let timer = 0;
  let failures = 0;
  let lostSince = "";

  function say(kind, words) {
    const line = marker();
    const text = line?.querySelector("[data-live-words]");
    if (!text) return;
    line.classList.toggle("is-live", kind === "live");
    line.classList.toggle("is-lost", kind === "lost");
    text.textContent = words;
  }

  function schedule(seconds) {
    clearTimeout(timer);
    if (!marker()?.dataset.live) return;
    timer = setTimeout(ask, 1000 * (seconds ?? Number(marker().dataset.live)));
  }

  function ask() {
    if (document.hidden) return;
    place();
    htmx.trigger(marker(), "live");
  }

  // --- what is asked ---

  document.addEventListener("htmx:configRequest", (event) => {
    if (event.detail.elt !== marker()) return;
    const { parameters } = event.detail;
    document.querySelectorAll("[data-revision-name]").forEach((part) => { parameters[part.dataset.revisionName] = part.dataset.revision; });
    const rows = [...document.querySelectorAll("[data-row]")].map((row) => row.dataset.row);
    if (rows.length) parameters.rows = rows.join(",");
    if (matching) parameters.matching = matching;
  });

  // --- what comes back ---

  // Somebody who was signed out is led to the sign-in page, which is no answer of ours.
  const isOurs = (xhr) => xhr.responseURL === "" || new URL(xhr.responseURL).pathname.endsWith("/live/");

  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.elt?.id === "live" && !isOurs(event.detail.xhr)) event.detail.shouldSwap = false;
  });

  const busy = (element) => Boolean(element) && (element.matches(":hover, :focus-within") || element.querySelector("details[open]"));

  function wouldDisturb(id) {
    if (id === "notices") return busy(document.getElementById("documents")) || busy(document.getElementById("notices"));
    if (document.getElementById(id)?.hasAttribute("data-calm")) return busy(document.getElementById(id));
    if (id === "head" || id === "facts" || id === "evidence" || id === "timeline") return busy(document.getElementById(id));
    return false;
  }

  function place() {
    for (const [id, fragment] of held) {
      const old = document.getElementById(id);
      if (wouldDisturb(id)) continue;
      held.delete(id);
      if (!old) continue;
      old.replaceWith(fragment);
      htmx.process(fragment);
    }
    if (held.size) setTimeout(place, 500);
  }

  let focused = "";
  let announced = document.querySelector("[data-announce]")?.dataset.announce;

  document.addEventListener("htmx:oobBeforeSwap", (event) => {
    const { target, fragment } = event.detail;
    focused = target.contains(document.activeElement) ? document.activeElement.id : "";
    const fresh = fragment.firstElementChild;
    target.querySelectorAll("details[id][open]").forEach((open) => {
      fragment.querySelector(`#${open.id}`)?.setAttribute("open", "");
    });
    const tick = target.querySelector("input.tick:checked") && fragment.querySelector("input.tick");
    if (tick) tick.checked = true;
    if (wouldDisturb(target.id) && fresh) {
      event.detail.shouldSwap = false;
      const copy = fresh.cloneNode(true);
      copy.removeAttribute("hx-swap-oob");
      if (!held.size) setTimeout(place, 500);
      held.set(target.id, copy);
    } else {
      held.delete(target.id);
    }
  });

  document.addEventListener("htmx:oobAfterSwap", () => {
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
    focused = "";
    const words = document.querySelector("[data-announce]")?.dataset.announce;
    if (words && words !== announced) {
      announced = words;
      document.getElementById("announce").textContent = words;
    }
  });

  document.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.elt?.id !== "live") return;
    const status = event.detail.xhr?.status ?? 0;
    if (status >= 200 && status < 300 && isOurs(event.detail.xhr)) {
      failures = 0;
      lostSince = "";
      say("live", "Live");
      schedule();
      return;
    }
    if (status >= 200 && status < 500) {
      say("lost", "Not live: you are signed out, or may not see this any more. Reload the page.");
      return;
    }
    failures += 1;
    if (failures >= LOST_AFTER) {
      lostSince ||= new Date().toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
      say("lost", `Not live: the server has not answered since ${lostSince}. Trying again.`);
    }
    schedule(Math.min(30, Number(marker()?.dataset.live ?? 2) * 2 ** Math.min(failures, 4)));
  });

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      clearTimeout(timer);
      say("paused", "Paused while this tab is hidden");
    } else if (marker()?.dataset.live) {
      ask();
    }
  });

  if (marker()?.dataset.live) {
    say("live", "Live");
    schedule();
  }
})();
