"use strict";
// Texts of people and models are set as text alone: nothing of them is ever taken for HTML.
const $ = id => document.getElementById(id);
// first words to try, by field
const STARTS = {
  text: "The service was quick and the food was wonderful.",
  text_a: "A man is playing a guitar.", text_b: "Someone makes music.",
  words: "Angela Merkel met the mayor of Paris, and flew to Berlin.",
  question: "Where is the tower?", context: "The tower is in Paris, and the bridge is in London.",
  choices: "He opens the door.\nThe door eats the bread.",
};
const COMPARED = {
  text: "How do I sort a list?",
  texts: "Sorting the items of a list\nThe weather is fine today\nA list can be put in order\nTomorrow it will rain",
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

// a colour for each type, in the order in which they come
const colours = new Map();
function mark(text, type) {
  if (!colours.has(type)) colours.set(type, colours.size % 6);
  const small = make("span", ` ${type}`);
  small.className = "tag";
  const part = make("mark", text, small);
  part.className = `c${colours.get(type)}`;
  return part;
}

function tagged(words, tags, entities) {
  const line = make("p");
  line.className = "text";
  const starts = new Map((entities || []).map(each => [each.start_word, each]));
  for (let place = 0; place < words.length; place++) {
    const entity = starts.get(place);
    if (entity) {
      line.append(mark(words.slice(place, entity.end_word).join(" "), entity.type), " ");
      place = entity.end_word - 1;
    } else if (!entities && tags[place] !== "O") line.append(mark(words[place], tags[place]), " ");
    else line.append(`${words[place]} `);
  }
  return [line];
}

function neighbours(found) {
  return found.map(each => {
    const row = bar(each.text, Math.max(0, each.similarity));
    row.lastChild.textContent = each.similarity.toFixed(3);
    return row;
  });
}

function answered(prediction, values) {
  const context = values.context || "";
  const start = prediction.start ?? context.indexOf(prediction.answer);
  if (!prediction.answer || start < 0) return [make("p", prediction.answer || "no answer")];
  const line = make("p", null, context.slice(0, start), mark(prediction.answer, "answer"),
    context.slice(start + prediction.answer.length));
  line.className = "text";
  return [line];
}

function view(prediction, values) {
  const shown = [];
  if (prediction.fillers?.length) shown.push(...fillers(prediction.fillers));
  if (prediction.is_next_probability !== undefined)
    shown.push(make("h3", "Does the second text follow?"), bar("follows", prediction.is_next_probability));
  if (prediction.scores && !Array.isArray(prediction.scores)) shown.push(...classes(prediction.scores));
  if (prediction.words && prediction.tags) shown.push(...tagged(prediction.words, prediction.tags, prediction.entities));
  if ("answer" in prediction) shown.push(...answered(prediction, values));
  if (!shown.length && prediction.fillers) shown.push(make("p", `Write ${model.mask} where a token is to be guessed.`));
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
    if (model.compares) {
      const found = await ask("compare", values);
      if (number !== newest) return;
      $("answer").replaceChildren(...neighbours(found.neighbours));
    }
    const masked = Object.values(values).some(each => each.includes(model.mask));
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

function startOf(field) {
  if (model.compares) return COMPARED[field];
  if (model.has_layers && field === "text") return `Return the ${model.mask} of the list.`;
  return STARTS[field] ?? "";
}

// the frame is as high as what is in it, whatever is chosen there
function fit() {
  const shown = $("frame").contentDocument?.body;
  if (!shown) return;
  const resize = () => { $("frame").style.height = `${shown.parentElement.offsetHeight + 32}px`; };
  new ResizeObserver(resize).observe(shown);
  resize();
}

async function begin() {
  model = await (await fetch("model")).json();
  document.title = $("title").textContent = `Try ${model.title}`;
  if (model.compares) {
    $("kind").textContent = "Nearest texts";
    $("answer").className = "neighbours";
  }
  $("model").textContent = model.model;
  for (const field of model.fields) {
    const area = make("textarea");
    area.name = field.name;
    area.rows = field.lines ? 4 : 2;
    area.value = startOf(field.name);
    area.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(show, 200); });
    const note = field.lines ? ", one a line" : field.required ? "" : ", if there is one";
    $("fields").append(make("label", null, make("span", field.name.replaceAll("_", " ") + note), area));
  }
  $("predictions").hidden = !model.predicts && !model.compares;
  $("attention").hidden = !model.has_attention;
  $("maps").addEventListener("click", () => {
    $("frame").hidden = false;
    $("frame").src = `attention?${new URLSearchParams(typed())}`;
  });
  $("frame").addEventListener("load", fit);
  if ($("fields").elements[0].value) show();
  if (location.hash === "#maps") $("maps").click();  // a link that opens them
}

begin().catch(error => { $("error").textContent = error.message; });
