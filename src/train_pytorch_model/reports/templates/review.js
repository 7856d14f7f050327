"use strict";
{% include "names.js" %}

const source = document.getElementById("data");
if (source) review(JSON.parse(source.textContent));

function review(data) {
  const { items, categories, words } = data;
  const storageKey = `review ${data.key}`;
  const list = [...document.querySelectorAll("#items > li")];
  const byId = (id) => document.getElementById(id);
  const action = (name) => document.querySelector(`[data-do="${name}"]`);
  // file → { decision, when }; decisions are as corrections.csv has them.
  let decisions = new Map();
  let history = [];  // [index, the decision before or null], for undo
  const added = new Set();  // categories that were typed, and are new
  let current = 0;
  let isOpened = false;
  let handle = null;  // of the file, where the browser writes to it

  // What the browser keeps when the page is closed. Some keep nothing for files, and throw.
  let isKept = true;
  function remember() {
    try {
      localStorage.setItem(storageKey, JSON.stringify({ decisions: [...decisions], who: byId("who").value }));
    } catch {
      isKept = false;
    }
    byId("kept").hidden = isKept;
    byId("saved").hidden = true;  // there is something new to save
  }
  try {
    const kept = JSON.parse(localStorage.getItem(storageKey) ?? "null");
    if (kept) {
      decisions = new Map(kept.decisions);
      byId("who").value = kept.who ?? "";
    }
  } catch {
    decisions = new Map();
  }

  // A category that is called like a decision is marked as a category.
  const fold = (text) => text.normalize("NFC").toLowerCase();
  function decisionFor(category) {
    // Spelled in any way that corrections.py reads as that decision.
    const spelled = category.toLowerCase().replaceAll("_", " ").split(/\s+/).filter(Boolean).join(" ");
    const isTaken = [words.discarded, words.notSure].includes(spelled) || category.startsWith(words.category);
    return isTaken ? words.category + category : category;
  }
  function described(decision) {
    if (decision === words.discarded || decision === words.notSure) return [decision];
    const name = decision.startsWith(words.category) ? decision.slice(words.category.length) : decision;
    return ["category ", isolated(name)];
  }

  function decide(decision) {
    const file = items[current].file;
    history.push([current, decisions.get(file) ?? null]);
    decisions.set(file, { decision, when: new Date().toISOString().slice(0, 19) + "Z" });
    remember();
    move(current + 1);
  }
  function undo() {
    const last = history.pop();
    if (!last) return;
    const [index, before] = last;
    if (before) decisions.set(items[index].file, before);
    else decisions.delete(items[index].file);
    remember();
    move(index);
  }
  function move(index) {
    current = Math.min(items.length - 1, Math.max(0, index));
    show();
    if (isOpened) byId("review").scrollIntoView({ behavior: "instant" });  // what is said of it is not covered
  }

  function button(label, key, onClick) {
    const made = document.createElement("button");
    made.type = "button";
    if (key) {
      const shown = document.createElement("kbd");
      shown.textContent = key;
      made.append(shown, " ");
      made.setAttribute("aria-keyshortcuts", key);
    }
    made.append(...label);
    made.addEventListener("click", onClick);
    return made;
  }
  function named(element, key, ...label) {
    const shown = document.createElement("kbd");
    shown.textContent = key;
    element.replaceChildren(shown, " ", ...label);
  }
  // The categories that have a number: all in their order, or of many, the most probable ones.
  function choices() {
    if (categories.length <= data.choices) return categories.map((_, index) => index);
    return items[current].choices.slice(0, data.choices);
  }

  function show() {
    const item = items[current];
    list.forEach((each, index) => each.classList.toggle("current", index === current));
    const made = decisions.get(item.file);
    byId("decision").replaceChildren(`${current + 1} of ${items.length}: `, ...(made ? ["decided: ", ...described(made.decision)] : ["not decided"]));
    const left = items.length - decisions.size;
    byId("progress").textContent = `${decisions.size} of ${items.length} decided, ${left ? `${left} left` : "none left: save them"}`;
    byId("done").style.width = `${(100 * decisions.size) / items.length}%`;

    const accept = action("accept");
    const proposed = item.proposed >= 0 ? categories[item.proposed] : null;
    if (proposed === null) named(accept, "Enter", "no proposal");
    else named(accept, "Enter", "accept ", isolated(proposed));
    accept.disabled = proposed === null;
    const keep = action("keep");
    if (item.given >= 0) named(keep, "K", "keep ", isolated(categories[item.given]));
    keep.hidden = item.given < 0 || item.given === item.proposed;  // then accepting keeps it
    byId("choices").replaceChildren(...choices().map((choice, position) =>
      button([isolated(categories[choice])], String(position + 1), () => decide(decisionFor(categories[choice])))));
    action("undo").disabled = history.length === 0;
    const heat = list[current].querySelector(".heat");
    action("heat").disabled = !heat;
    if (heat) heat.hidden = action("heat").getAttribute("aria-pressed") !== "true";
    byId("typed").value = "";
    byId("found").textContent = "";
  }

  // Typing finds a category by a part of its name; another name is a new category.
  function typed(text) {
    const name = text.trim();
    if (!name) return null;
    const known = [...categories, ...added];
    const exact = known.find((each) => fold(each) === fold(name));
    return exact ?? known.find((each) => fold(each).startsWith(fold(name)))
      ?? known.find((each) => fold(each).includes(fold(name))) ?? name;
  }
  byId("typed").addEventListener("input", () => {
    const name = typed(byId("typed").value);
    const isNew = name !== null && !categories.includes(name) && !added.has(name);
    byId("found").replaceChildren(...(name === null ? [] : [isNew ? "new category " : "Enter: ", isolated(name)]));
  });
  byId("typed").addEventListener("keydown", (event) => {
    if (event.key === "Escape") byId("typed").blur();
    if (event.key !== "Enter" || event.isComposing) return;
    event.preventDefault();
    const name = typed(byId("typed").value);
    if (name === null) return;
    byId("typed").blur();
    if (!categories.includes(name)) added.add(name);
    decide(decisionFor(name));
  });

  function toggle(name) {
    const pressed = action(name).getAttribute("aria-pressed") !== "true";
    action(name).setAttribute("aria-pressed", String(pressed));
    if (name === "zoom") document.body.classList.toggle("zoomed", pressed);
    else show();
  }
  const actions = {
    accept: () => { if (items[current].proposed >= 0) decide(decisionFor(categories[items[current].proposed])); },
    keep: () => { if (items[current].given >= 0) decide(decisionFor(categories[items[current].given])); },
    discard: () => decide(words.discarded),
    unsure: () => decide(words.notSure),
    back: () => move(current - 1),
    next: () => move(current + 1),
    undo,
    zoom: () => toggle("zoom"),
    heat: () => { if (!action("heat").disabled) toggle("heat"); },
    save,
  };
  for (const [name, run] of Object.entries(actions)) action(name).addEventListener("click", run);
  const keys = {
    Enter: "accept", k: "keep", d: "discard", n: "unsure", ArrowLeft: "back", Backspace: "back", ArrowRight: "next",
    u: "undo", z: "zoom", h: "heat", s: "save",
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.target.matches("input")) return;
    // A button that has the focus is pressed by Enter, as everywhere.
    if (event.key === "Enter" && event.target.matches("button, a, summary")) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const choice = choices()[Number(key) - 1];
    if (key === "/") byId("typed").focus();
    else if (/^[1-9]$/.test(key) && choice !== undefined) decide(decisionFor(categories[choice]));
    else if (keys[key]) actions[keys[key]]();
    else return;
    event.preventDefault();
  });

  // The table, as Python's csv writes it: the same decisions are the same bytes.
  // What a spreadsheet would compute begins with an apostrophe, as of spreadsheet_cells.py.
  function cell(name) {
    const text = /^'*[=+\-@\t\r][^]*[(|!]/.test(name) ? `'${name}` : name;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }
  function table() {
    const who = byId("who").value.trim();
    const rows = [["file", "sha256", "before", "decision", "who", "when"]];
    rows.push(...data.earlier.filter((row) => !decisions.has(row[0])));
    for (const item of items) {
      const made = decisions.get(item.file);
      const before = item.given >= 0 ? categories[item.given] : "";
      if (made) rows.push([item.file, item.sha256, before, made.decision, who, made.when]);
    }
    return rows.map((row) => row.map(cell).join(",") + "\n").join("");
  }
  function tellSaved() {
    byId("saved").hidden = false;
    byId("saved").scrollIntoView({ block: "center", behavior: "instant" });
  }
  function download(text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    link.download = "corrections.csv";
    link.click();
    tellSaved();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }
  async function save() {
    const text = table();
    if (!window.showSaveFilePicker) return download(text);
    try {
      handle ??= await window.showSaveFilePicker({ suggestedName: "corrections.csv" });
      const file = await handle.createWritable();
      await file.write(text);
      await file.close();
      tellSaved();
    } catch (error) {
      handle = null;
      if (error.name !== "AbortError") download(text);
    }
  }
  byId("who").addEventListener("change", remember);
  byId("clear").addEventListener("click", () => {
    if (!confirm("Forget all decisions on this page?")) return;
    decisions.clear();
    history = [];
    remember();
    move(0);
  });

  const options = document.createDocumentFragment();
  for (const name of categories) options.append(new Option(name, name));
  byId("all").append(options);
  for (const id of ["tools", "decide"]) byId(id).hidden = false;
  document.body.classList.add("alone");
  remember();
  const first = items.findIndex((item) => !decisions.has(item.file));
  move(first < 0 ? 0 : first);
  isOpened = true;
}
