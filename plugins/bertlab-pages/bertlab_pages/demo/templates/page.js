"use strict";
// Texts of people and models are set as text alone: nothing of them is ever taken for HTML.
const $ = id => document.getElementById(id);
const STARTS = {
  text: "Return the [MASK] of the list.",
  text_pair: "", context: "", question: "",
};
let model, waiting, newest = 0;

function make(tag, text, ...children) {
  const element = document.createElement(tag);
  if (text !== undefined && text !== null) element.textContent = text;
  element.append(...children);
  return element;
}

const percent = share => `${(100 * share).toFixed(1)} %`;

function bar(name, share) {
  const row = make("div");
  row.className = "bar";
  const meter = make("meter");
  meter.value = share;
  const value = make("span", percent(share));
  value.className = "value";
  row.append(make("span", name), meter, value);
  return row;
}

// ---- one view for each kind of prediction; what no view knows is shown as JSON ----

function fillers(found) {
  return found.map((tokens, place) => make("div", null,
    make("h3", found.length > 1 ? `[MASK] ${place + 1}` : "[MASK]"),
    ...tokens.map(each => bar(each.token, each.probability))));
}

function classes(scores) {
  const order = Object.entries(scores).sort((a, b) => b[1] - a[1]);
  return order.map(([name, share]) => bar(name, share));
}

function tagged(words, tags) {
  const line = make("p");
  words.forEach((word, place) => {
    const tag = tags[place];
    const part = tag === "O" ? make("span", word) : make("mark", word);
    line.append(part);
    if (tag !== "O") { const small = make("span", ` ${tag}`); small.className = "tag"; line.append(small); }
    line.append(" ");
  });
  return [line];
}

function answered(prediction, values) {
  const context = values.context || "";
  const start = prediction.start ?? context.indexOf(prediction.answer);
  if (!prediction.answer || start < 0) return [make("p", prediction.answer || "no answer")];
  return [make("p", null, context.slice(0, start), make("mark", prediction.answer),
    context.slice(start + prediction.answer.length))];
}

function view(prediction, values) {
  const shown = [];
  if (prediction.fillers?.length) shown.push(...fillers(prediction.fillers));
  if (prediction.is_next_probability !== undefined)
    shown.push(make("h3", "Does the second text follow?"), bar("follows", prediction.is_next_probability));
  if (prediction.scores && !Array.isArray(prediction.scores)) shown.push(...classes(prediction.scores));
  if (prediction.words && prediction.tags) shown.push(...tagged(prediction.words, prediction.tags));
  if ("answer" in prediction) shown.push(...answered(prediction, values));
  if (!shown.length && prediction.fillers) shown.push(make("p", "Write [MASK] where a token is to be guessed."));
  if (!shown.length) shown.push(make("pre", JSON.stringify(prediction, null, 2)));
  return shown;
}

function layerTable(layers) {
  const table = make("table");
  layers.forEach((masks, number) => {
    const row = make("tr", null, make("th", String(number)));
    for (const tokens of masks) {
      const cell = make("td");
      tokens.forEach((each, place) => cell.append(place ? "  " : "",
        place ? make("small", `${each.token} ${percent(each.probability)}`)
          : make("span", `${each.token} ${percent(each.probability)}`)));
      row.append(cell);
    }
    table.prepend(row);
  });
  return table;
}

// ---- asking ----

function typed() {
  return Object.fromEntries([...$("fields").elements].map(each => [each.name, each.value]));
}

async function ask(path, values) {
  const found = await fetch(path, {method: "POST", headers: {"Content-Type": "application/json"},
    body: JSON.stringify(values)});
  const content = await found.json();
  if (!found.ok) throw new Error(content.error);
  return content;
}

async function show() {
  const values = typed(), number = ++newest;
  try {
    if (model.predicts) {
      const prediction = await ask("predict", values);
      if (number !== newest) return;  // something was typed since
      $("answer").replaceChildren(...view(prediction, values));
    }
    const masked = Object.values(values).some(each => each.includes("[MASK]"));
    $("layers").hidden = !(model.has_layers && masked);
    if (!$("layers").hidden) {
      const found = await ask("layers", values);
      if (number !== newest) return;
      $("table").replaceChildren(layerTable(found.layers));
    }
    $("error").textContent = "";
  } catch (error) {
    if (number === newest) $("error").textContent = error.message;
  }
}

async function begin() {
  model = await (await fetch("model")).json();
  document.title = $("title").textContent = model.title;
  $("model").textContent = model.model;
  for (const field of model.fields) {
    const area = make("textarea");
    area.name = field.name;
    area.rows = field.lines ? 4 : 2;
    area.value = model.has_layers ? STARTS[field.name] ?? "" : "";
    area.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(show, 200); });
    const note = field.lines ? ", one a line" : field.required ? "" : ", if there is one";
    $("fields").append(make("label", null, make("span", field.name.replaceAll("_", " ") + note), area));
  }
  $("predictions").hidden = !model.predicts;
  $("attention").hidden = !model.has_attention;
  $("maps").addEventListener("click", () => {
    $("frame").hidden = false;
    $("frame").src = `attention?${new URLSearchParams(typed())}`;
  });
  if ($("fields").elements[0].value) show();
}

begin().catch(error => { $("error").textContent = error.message; });
