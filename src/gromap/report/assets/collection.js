"use strict";
// The page of a collection: the theme, and the pair of shapes under the pointer.

const facts = JSON.parse(document.getElementById("facts").textContent);
const cells = document.querySelector(".cells");
const under = document.getElementById("under");
const root = document.documentElement;

root.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
document.getElementById("theme").addEventListener("click", () => {
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
});

if (cells) {
  const hint = under.textContent;
  cells.addEventListener("pointermove", (event) => {
    const box = cells.getBoundingClientRect();
    const count = facts.names.length;
    const place = (at, from, size) => Math.max(0, Math.min(count - 1, Math.floor((count * (at - from)) / size)));
    const row = place(event.clientY, box.top, box.height);
    const column = place(event.clientX, box.left, box.width);
    const distance = facts.distances[row][column];
    under.textContent = `${facts.names[row]} and ${facts.names[column]}: ${distance === null ? "failed" : distance}`;
  });
  cells.addEventListener("pointerleave", () => (under.textContent = hint));
}
