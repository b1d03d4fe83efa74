"use strict";
const content = JSON.parse(document.getElementById("content").textContent);
const get = (id) => document.getElementById(id);
const colour = () => getComputedStyle(document.documentElement).getPropertyValue("--weight");
const shade = (weight) => Math.sqrt(weight / 100); // by the square root, so that 0.02 can be seen
const chosen = { row: 0, layer: 0, head: 0, from: 0, to: 0 };

for (const row of content.rows) {
  row.weights = Uint8Array.from(atob(row.weights), (letter) => letter.charCodeAt(0));
}

function make(tag, text, classes) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (classes) made.className = classes;
  return made;
}

// the weights of a head, hundredths, one line after the other
function weights(layer, head) {
  const row = content.rows[chosen.row];
  const size = row.tokens.length ** 2;
  const start = (layer * content.heads + head) * size;
  return row.weights.subarray(start, start + size);
}

function drawShades() {
  get("shades").replaceChildren();
  for (const weight of [0, 10, 50, 100]) {
    const square = make("span", "", "shade");
    square.style.background = `rgb(${colour()} / ${shade(weight)})`;
    get("shades").append(square, (weight / 100).toString());
  }
}

function drawLarge() {
  const row = content.rows[chosen.row];
  const found = weights(chosen.layer, chosen.head);
  const name = `Layer ${chosen.layer + 1}, head ${chosen.head + 1}`;
  get("chosen").textContent = name;
  const figures = content.figures.map((figure, place) => {
    const value = row.figures[place][chosen.layer][chosen.head];
    return place ? `${figure} ${(100 * value).toFixed(1)} %` : `${figure} ${value.toFixed(2)} nats`;
  });
  get("figures").textContent = [row.where, ...figures].join(" · ");
  const table = make("table");
  table.style.setProperty("--cell", `clamp(1.125rem, ${32 / row.tokens.length}rem, 2rem)`);
  table.setAttribute("aria-label", `${name}: attention from each token to each token`);
  const head = table.createTHead().insertRow();
  head.append(make("td"));
  for (const token of row.tokens) {
    const cell = make("th", token);
    cell.scope = "col";
    head.append(cell);
  }
  const body = table.createTBody();
  row.tokens.forEach((token, from) => {
    const line = body.insertRow();
    const heading = make("th", token);
    heading.scope = "row";
    line.append(heading);
    row.tokens.forEach((_, to) => {
      const weight = found[from * row.tokens.length + to];
      const cell = line.insertCell();
      cell.setAttribute("aria-label", (weight / 100).toFixed(2));
      cell.style.background = `rgb(${colour()} / ${shade(weight)})`;
      cell.dataset.place = `${from} ${to}`;
    });
  });
  get("map").replaceChildren(table);
  mark(chosen.from, chosen.to);
}

function mark(from, to) {
  const row = content.rows[chosen.row];
  Object.assign(chosen, { from, to });
  const weight = weights(chosen.layer, chosen.head)[from * row.tokens.length + to] / 100;
  get("readout").textContent = `${row.tokens[from]} → ${row.tokens[to]}: ${weight.toFixed(2)}`;
  for (const each of get("map").querySelectorAll(".on")) each.classList.remove("on");
  const lines = get("map").querySelector("table").rows;
  const cell = lines[from + 1].cells[to + 1];
  for (const each of [cell, lines[from + 1].cells[0], lines[0].cells[to + 1]]) each.classList.add("on");
  return cell;
}

function drawSmall() {
  const row = content.rows[chosen.row];
  const size = row.tokens.length;
  const [red, green, blue] = colour().trim().split(" ").map(Number);
  get("small").replaceChildren();
  for (let layer = 0; layer < content.layers; layer++) {
    const line = make("div", undefined, "heads");
    for (let head = 0; head < content.heads; head++) {
      const canvas = make("canvas");
      canvas.width = canvas.height = size;
      const image = new ImageData(size, size);
      weights(layer, head).forEach((weight, place) => {
        image.data.set([red, green, blue, 255 * shade(weight)], 4 * place);
      });
      canvas.getContext("2d").putImageData(image, 0, 0);
      const button = make("button", undefined, "small");
      button.type = "button";
      button.setAttribute("aria-label", `Layer ${layer + 1}, head ${head + 1}`);
      button.append(canvas, `${layer + 1}-${head + 1}`);
      button.addEventListener("click", () => choose({ layer, head }));
      line.append(button);
    }
    get("small").append(make("h3", `Layer ${layer + 1}`), line);
  }
}

function press() {
  get("small").querySelectorAll("button").forEach((button, place) => {
    button.setAttribute("aria-pressed", place === chosen.layer * content.heads + chosen.head);
  });
}

function choose(change) {
  const other = "row" in change && change.row !== chosen.row;
  Object.assign(chosen, change, other ? { from: 0, to: 0 } : {});
  for (const key of ["row", "layer", "head"]) get(key).value = chosen[key];
  if (other) drawSmall();
  drawLarge();
  press();
}

function drawAll() {
  get("small").style.setProperty("--heads", content.heads);
  drawShades();
  drawSmall();
  choose({});
}

const names = {
  row: content.rows.map((row, place) => `${place + 1}: ${row.tokens.slice(1, -1).join(" ").slice(0, 80)}`),
  layer: Array.from({ length: content.layers }, (_, place) => `${place + 1}`),
  head: Array.from({ length: content.heads }, (_, place) => `${place + 1}`),
};
for (const [key, texts] of Object.entries(names)) {
  texts.forEach((text, place) => {
    const option = make("option", text);
    option.value = place;
    get(key).append(option);
  });
  get(key).addEventListener("change", () => choose({ [key]: Number(get(key).value) }));
}
get("map").addEventListener("mouseover", (event) => {
  const place = event.target.closest("td[data-place]");
  if (place) mark(...place.dataset.place.split(" ").map(Number));
});
get("map").addEventListener("keydown", (event) => {
  const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (!step) return;
  event.preventDefault();
  const last = content.rows[chosen.row].tokens.length - 1;
  const [from, to] = [chosen.from + step[0], chosen.to + step[1]];
  mark(Math.min(Math.max(from, 0), last), Math.min(Math.max(to, 0), last)).scrollIntoView({ block: "nearest", inline: "nearest" });
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
drawAll();
