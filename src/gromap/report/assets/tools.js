"use strict";
// What the header's buttons do beside the pose: lines between matched points, edges, a picture of both shapes.

const LINE = 1.4; // pixels

class Lines {
  // pairs: [source vertex, target vertex]
  constructor(svg, views, pairs) {
    Object.assign(this, { svg, views, pairs, shown: false });
    views.forEach((view) => (view.drawn = () => this.draw()));
  }

  toggle(on) {
    this.shown = on;
    this.draw();
  }

  // Ends in pixels of the picture of both shapes, and colors; without those that end outside of a canvas.
  ends() {
    if (!this.shown) return [];
    const outer = this.svg.parentElement.getBoundingClientRect();
    const boxes = this.views.map((view) => view.canvas.getBoundingClientRect());
    const colors = this.views[0].geometry.attributes.color.array;
    return this.pairs.flatMap((pair) => {
      const ends = pair.map((index, s) => this.views[s].place(index));
      if (ends.some(([x, y], s) => x < 0 || y < 0 || x > boxes[s].width || y > boxes[s].height)) return [];
      const [[x, y], [u, v]] = ends.map(([x, y], s) => [x + boxes[s].left - outer.left, y + boxes[s].top - outer.top]);
      return [{ x, y, u, v, color: `rgb(${colors.slice(3 * pair[0], 3 * pair[0] + 3).join(" ")})` }];
    });
  }

  draw() {
    const make = (name, attributes) => {
      const element = document.createElementNS("http://www.w3.org/2000/svg", name);
      for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
      return element;
    };
    const parts = this.ends().flatMap(({ x, y, u, v, color }) => [
      make("line", { x1: x, y1: y, x2: u, y2: v, class: "under" }),
      make("line", { x1: x, y1: y, x2: u, y2: v, stroke: color }),
      ...[[x, y], [u, v]].map(([cx, cy]) => make("circle", { cx, cy, r: 3.5, fill: color })),
    ]);
    this.svg.replaceChildren(...parts);
  }
}

// Both shapes as they are seen, with their lines, as the pixels of a PNG file.
function picture(pair, views, lines) {
  const ratio = Math.min(window.devicePixelRatio, 2);
  const outer = pair.getBoundingClientRect();
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(ratio * outer.width);
  canvas.height = Math.round(ratio * outer.height);
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.fillStyle = getComputedStyle(document.body).backgroundColor;
  pen.fillRect(0, 0, outer.width, outer.height);
  for (const view of views) {
    view.draw(); // what was drawn before is gone once it is on the screen
    const box = view.canvas.getBoundingClientRect();
    pen.fillStyle = getComputedStyle(view.canvas).backgroundColor;
    pen.fillRect(box.left - outer.left, box.top - outer.top, box.width, box.height);
    pen.drawImage(view.canvas, box.left - outer.left, box.top - outer.top, box.width, box.height);
  }
  pen.lineWidth = LINE;
  for (const { x, y, u, v, color } of lines.ends()) {
    pen.strokeStyle = color;
    pen.beginPath();
    pen.moveTo(x, y);
    pen.lineTo(u, v);
    pen.stroke();
  }
  return canvas.toDataURL("image/png");
}

function setUpTools(views, pairs) {
  const lines = new Lines(document.getElementById("lines"), views, pairs);
  const toggle = (id, act) => {
    const button = document.getElementById(id);
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", on);
      act(on);
    });
  };
  toggle("show-lines", (on) => lines.toggle(on));
  toggle("wireframe", (on) => views.forEach((view) => view.wire(on)));
  document.getElementById("show-lines").hidden = pairs.length === 0;
  document.getElementById("wireframe").hidden = views.every((view) => view.faces.length === 0);
  document.getElementById("picture").addEventListener("click", () => {
    const link = document.createElement("a");
    link.download = `${document.title}.png`;
    link.href = picture(document.querySelector(".pair"), views, lines);
    link.click();
  });
}
