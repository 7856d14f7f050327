// A name keeps its own text direction, whatever its script, and is broken between words only.
function isolated(text) {
  const name = document.createElement("bdi");
  // After the same characters as in page.py.
  for (const part of text.split(/(?<=[/\\_+,=&@-])/)) name.append(part, document.createElement("wbr"));
  return name;
}
