// What every page can do with scripts: menus, ticked rows, buttons that say they are busy, drop zone, the reader's own time.
// Every page works without this file.
(() => {
  "use strict";
  document.documentElement.classList.add("js");

  document.addEventListener("click", (event) => {
    document.querySelectorAll("details.menu[open]").forEach((menu) => {
      if (!menu.contains(event.target)) menu.open = false;
    });
  });

  // Rows that are ticked: how many, and what to do with them only while there are any.
  function ticked() {
    const form = document.querySelector("[data-ticked]");
    if (!form) return;
    const count = document.querySelectorAll("input.tick:checked").length;
    form.classList.toggle("has-ticks", count > 0);
    form.querySelector("[data-ticked-count]").textContent = count ? `: ${count}` : "";
    const { least, most } = form.querySelector("option:checked").dataset;
    form.querySelector("[data-ticked-price]").textContent = count ? bills(least * count, most * count) : "";
  }
  // In the words of `verbs.bills`.
  const bills = (least, most) => !most ? "free" : least === most ? `bills ${most}`
    : `bills ${least} ${most === least + 1 ? "or" : "to"} ${most}`;
  document.addEventListener("change", (event) => { if (event.target.matches("input.tick, #ticked-verb")) ticked(); });
  window.addEventListener("pageshow", ticked);

  // A form is sent once: the button says so and further presses do nothing. Back brings it to life again.
  document.addEventListener("submit", (event) => {
    const button = event.target.querySelector("button[data-busy]");
    if (!button) return;
    if (button.getAttribute("aria-busy") === "true") {
      event.preventDefault();
      return;
    }
    button.dataset.words = button.textContent;
    button.setAttribute("aria-busy", "true");
    button.textContent = button.dataset.busy;
  });
  window.addEventListener("pageshow", () => {
    document.querySelectorAll("button[aria-busy][data-words]").forEach((button) => {
      button.removeAttribute("aria-busy");
      button.textContent = button.dataset.words;
    });
  });

  const zone = document.querySelector("[data-drop]");
  if (zone) {
    const input = zone.querySelector("input[type=file]");
    const chosen = zone.querySelector("[data-chosen]");
    const size = (bytes) => bytes < 1e3 ? `${bytes} bytes` : bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
    const show = () => {
      const file = input.files[0];
      chosen.textContent = file ? `${file.name}, ${size(file.size)}` : "";
    };
    input.addEventListener("change", show);
    for (const kind of ["dragenter", "dragover"]) zone.addEventListener(kind, () => zone.classList.add("is-over"));
    for (const kind of ["dragleave", "drop"]) zone.addEventListener(kind, () => zone.classList.remove("is-over"));
    // A file that misses the zone must not replace the page.
    for (const kind of ["dragover", "drop"]) {
      document.addEventListener(kind, (event) => { if (event.target !== input) event.preventDefault(); });
    }
    show();
  }

  const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  document.addEventListener("mouseover", (event) => {
    const time = event.target.closest?.("time[datetime]");
    if (time && !time.dataset.local) {
      time.dataset.local = "yes";
      time.title = `${time.title}\n${local.format(new Date(time.dateTime))} here`;
    }
  });
})();
