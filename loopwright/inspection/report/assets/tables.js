// Tables that are sorted by a click on a title, and filtered by what is typed above them.

/** What the reader chose of each table, by its id, kept when the table is replaced. */
const chosenOfTable = new Map();

function enhanceTable(table) {
  const state = chosenOfTable.get(table.id) || { column: -1, descending: false, filter: "" };
  chosenOfTable.set(table.id, state);
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const titles = [...table.tHead.rows[0].cells];
  const arrange = () => {
    titles.forEach((title, column) => {
      if (column !== state.column) title.removeAttribute("aria-sort");
      else title.setAttribute("aria-sort", state.descending ? "descending" : "ascending");
    });
    body.append(...(state.column < 0 ? rows : sorted(rows, state)));
    const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    return shown;
  };
  titles.forEach((title, column) => {
    const button = element("button", { type: "button" }, ...title.childNodes);
    button.addEventListener("click", () => {
      state.descending = state.column === column && !state.descending;
      state.column = column;
      arrange();
    });
    title.replaceChildren(button);
  });
  if (rows.length > 4) addFilter(table, state, arrange, rows.length);
  arrange();
}

/** Rows in the order of one column: by the number that a cell holds, else by its text. */
function sorted(rows, { column, descending }) {
  const key = (row) => {
    const cell = row.cells[column];
    const given = cell.dataset.value;
    return given === undefined ? cell.textContent : given === "" ? Infinity : Number(given);
  };
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
  const found = rows.map((row) => [key(row), row]).sort(([a], [b]) => compare(a, b));
  if (descending) found.reverse();
  return found.map(([, row]) => row);
}

function addFilter(table, state, arrange, total) {
  const input = element("input", { type: "search", id: `${table.id}-filter`, placeholder: "words that a row must hold", size: "26" });
  const said = element("span", { class: "soft", role: "status" });
  const label = element("label", { for: input.id }, "Filter ");
  input.value = state.filter;
  const apply = () => {
    state.filter = input.value;
    const shown = arrange();
    said.textContent = shown === total ? "" : `${shown} of ${total} rows`;
  };
  input.addEventListener("input", apply);
  table.closest(".scroll").before(element("div", { class: "tools" }, label, input, said));
  apply();
}
