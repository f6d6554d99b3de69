"use strict";
(() => {
  const root = document.documentElement;
  const theme = document.getElementById("theme");
  const remembered = (value) => {
    try {
      if (value) localStorage.setItem("onnxgate-theme", value);
      return localStorage.getItem("onnxgate-theme");
    } catch {
      return value;
    }
  };
  const isDark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const name = () => { theme.textContent = isDark() ? "Light theme" : "Dark theme"; };
  const kept = remembered();
  if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    remembered(root.dataset.theme);
    name();
  });
  name();
  theme.hidden = false;

  const form = document.querySelector(".controls");
  if (form) {
    const cards = [...document.querySelectorAll(".finding")];
    const texts = cards.map((card) => `${card.parentElement.firstElementChild.textContent} ${card.textContent}`.toLowerCase());
    const apply = () => {
      const words = form.querySelector("#search").value.toLowerCase().split(/\s+/).filter(Boolean);
      const levels = new Set([...form.querySelectorAll("[data-level]:checked")].map((box) => box.dataset.level));
      const more = document.querySelector(".more");
      if (more && words.length) more.open = true;
      let shown = 0;
      cards.forEach((card, index) => {
        card.hidden = !levels.has(card.dataset.level) || !words.every((word) => texts[index].includes(word));
        shown += card.hidden ? 0 : 1;
      });
      document.querySelectorAll(".group").forEach((group) => { group.hidden = !group.querySelector(".finding:not([hidden])"); });
      form.querySelector("output").textContent = shown === cards.length ? "" : `${shown} of ${cards.length} shown`;
    };
    form.addEventListener("input", apply);
    form.addEventListener("submit", (event) => event.preventDefault());
    const reveal = () => {
      const target = document.getElementById(location.hash.slice(1));
      const hidden = target && target.hidden;
      const folded = target && target.closest("details:not([open])");
      if (hidden) { form.reset(); apply(); }
      if (folded) folded.open = true;
      if (hidden || folded) target.scrollIntoView();
    };
    addEventListener("hashchange", reveal);
    reveal();
    form.hidden = false;
  }
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => { each.open = true; }));
})();
