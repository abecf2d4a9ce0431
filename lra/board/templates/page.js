'use strict';
// Sorting, filters, records of a row, and the theme. Without this script the
// page shows everything.
(function () {
  const all = (selector, root) => [
    ...(root || document).querySelectorAll(selector)];
  const status = document.getElementById('status');
  const words = new Intl.Collator('en', {numeric: true, sensitivity: 'base'});

  // A cell sorts by its first number, or by its text; '' is an empty cell.
  function key(body, place, number) {
    const text = body.rows[0].cells[place].textContent;
    if (!number) return text === '\u2013' ? '' : text;
    const found = text.replaceAll(',', '').match(/[+-]?\d[\d.]*(e[+-]\d+)?/);
    return found ? Number(found[0]) : '';
  }

  // Sorts numbers by value, texts by letters; empty cells are always last.
  function sort(heading) {
    const table = heading.closest('table');
    const place = heading.cellIndex;
    const number = heading.dataset.kind === 'number';
    const now = heading.getAttribute('aria-sort');
    const down = now === 'none' ? number : now === 'ascending';
    const order = down ? 'descending' : 'ascending';
    const bodies = all('tbody:not(.pinned)', table);
    const compare = (a, b) => {
      const x = key(a, place, number), y = key(b, place, number);
      if (x === '' || y === '') return (x === '') - (y === '');
      const apart = number ? x - y : words.compare(x, y);
      return down ? -apart : apart;
    };
    bodies.sort(compare).forEach((body) => table.append(body));
    all('th', table).forEach(
        (other) => other.setAttribute('aria-sort', other === heading ? order :
            'none'));
    status.value = `sorted by ${heading.textContent}, ${order}`;
  }

  const form = document.getElementById('filters');
  const fields = [...form.elements].filter((field) => field.name);
  const rows = all('tbody').filter((body) => Object.keys(body.dataset).length);
  const pages = all('a[href$=".html"]');

  // A limit also hides the rows whose value is not known.
  function matches({dataset}, {family, model, state, cost}) {
    return (!family || dataset.family === family) &&
        (!state || Number(dataset.state) <= Number(state)) &&
        (!cost || Number(dataset.cost) <= Number(cost)) &&
        dataset.model.toLowerCase().includes(model.trim().toLowerCase());
  }

  function filter() {
    const wanted = Object.fromEntries(new FormData(form));
    rows.forEach((body) => { body.hidden = !matches(body, wanted); });
    all('.box, main section').forEach((part) => {
      const mine = rows.filter((body) => part.contains(body));
      part.hidden = mine.length > 0 && mine.every((body) => body.hidden);
    });
    const counted = rows.filter((body) => body.closest('.counted'));
    const left = counted.filter((body) => !body.hidden).length;
    status.value = left === counted.length ? `${left} rows` :
        `${left} of ${counted.length} rows`;
    // The other pages open with the same filters.
    const kept = new URLSearchParams(
        Object.entries(wanted).filter(([, value]) => value)).toString();
    pages.forEach((link) => { link.hash = kept; });
    return kept;
  }

  function change() {
    history.replaceState(null, '', `#${filter()}`);
  }

  document.addEventListener('click', (event) => {
    const button = event.target.closest('button');
    if (!button) return;
    if (button.parentElement.tagName === 'TH') sort(button.parentElement);
    if (button.classList.contains('more')) {
      const open = button.closest('tbody').classList.toggle('open');
      button.setAttribute('aria-expanded', open);
    }
  });
  all('button.more').forEach((button) => {
    button.setAttribute('aria-expanded', false);
  });
  form.addEventListener('input', change);
  form.addEventListener('reset', (event) => {
    event.preventDefault();  // the reset would come after `change`
    fields.forEach((field) => { field.value = ''; });
    change();
  });
  form.addEventListener('submit', (event) => event.preventDefault());
  const asked = new URLSearchParams(location.hash.slice(1));
  fields.forEach((field) => { field.value = asked.get(field.name) || ''; });
  filter();

  const root = document.documentElement;
  const theme = document.getElementById('theme');
  const dark = matchMedia('(prefers-color-scheme: dark)');
  let kept = {};
  try { kept = localStorage; } catch { /* a browser may refuse to store */ }
  root.dataset.theme = kept.theme || '';
  const isDark = () => root.dataset.theme ?
      root.dataset.theme === 'dark' : dark.matches;
  const tell = () => { theme.setAttribute('aria-pressed', isDark()); };
  theme.addEventListener('click', () => {
    root.dataset.theme = isDark() ? 'light' : 'dark';
    kept.theme = root.dataset.theme;
    tell();
  });
  dark.addEventListener('change', tell);
  tell();
})();
