// Checks of what users need who look at a page, listen to it or have no mouse. The tests evaluate
// this script in each page. It only unfolds what is folded, and changes nothing else.
(() => {
  const name = e => {
    const text = (e.getAttribute('aria-label') || e.innerText || e.value || '').trim().replace(/\s+/g, ' ').slice(0, 40);
    return `<${e.tagName.toLowerCase()}${e.id ? ' id=' + e.id : ''}${e.getAttribute('class') ? ' class=' + e.getAttribute('class') : ''}> "${text}"`;
  };
  const seen = e => {
    const box = e.getBoundingClientRect();
    return e.checkVisibility({ visibilityProperty: true, contentVisibilityAuto: true }) && box.width > 1 && box.height > 1;
  };

  // A color as red, green and blue from 0 to 1, and its opacity.
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
  const known = new Map();
  const color = text => {
    if (!known.has(text)) {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = text;
      canvas.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
      known.set(text, [r / 255, g / 255, b / 255, a / 255]);
    }
    return known.get(text);
  };
  const over = (top, under) => [0, 1, 2].map(i => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
  const ground = e => {
    const layers = [];
    for (; e; e = e.parentElement) {
      const c = color(getComputedStyle(e).backgroundColor);
      if (c[3] > 0) layers.push(c);
      if (c[3] === 1) break;
    }
    return layers.reduceRight((under, top) => over(top, under), [1, 1, 1, 1]);
  };
  const light = c => {
    const [r, g, b] = c.map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const ratio = (a, b) => {
    const [low, high] = [light(a), light(b)].sort((a, b) => a - b);
    return (high + .05) / (low + .05);
  };
  const faded = e => {
    let opacity = 1;
    for (; e; e = e.parentElement) opacity *= Number(getComputedStyle(e).opacity);
    return opacity;
  };

  // Text must stand out from what is behind it by 4.5:1, or by 3:1 if it's large; the edge of a field
  // by 3:1.
  const contrast = () => {
    const found = new Set();
    const judge = (e, css, what) => {
      const is = css.slice(0, 3).concat(css[3] * faded(e)), behind = ground(e);
      const style = getComputedStyle(e), size = parseFloat(style.fontSize);
      const least = size >= 24 || size >= 18.66 && style.fontWeight >= 700 ? 3 : 4.5;
      const got = ratio(over(is, behind), behind);
      if (got < least) found.add(`${what} of ${name(e)}: ${got.toFixed(2)}:1, not ${least}:1`);
    };
    const words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (words.nextNode()) {
      const e = words.currentNode.parentElement;
      if (!words.currentNode.data.trim() || e.closest('script, style, option') || e.closest(':disabled') || !seen(e)) continue;
      judge(e, color(e instanceof SVGElement ? getComputedStyle(e).fill : getComputedStyle(e).color), 'text');
    }
    for (const e of document.querySelectorAll('input:not([type=hidden], [type=checkbox], [type=radio]), textarea, select')) {
      if (!seen(e) || e.disabled) continue;
      judge(e, color(getComputedStyle(e).color), 'value');
      if (e.placeholder) judge(e, color(getComputedStyle(e, '::placeholder').color), 'placeholder');
      const behind = ground(e.parentElement), edge = ratio(over(color(getComputedStyle(e).borderBottomColor), behind), behind);
      if (edge < 3 && ratio(ground(e), behind) < 3) found.add(`edge of ${name(e)}: ${edge.toFixed(2)}:1, not 3:1`);
    }
    return [...found];
  };

  // Returns what extends beyond the window, unless it scrolls by itself.
  const sideways = () => {
    const root = document.documentElement;
    if (root.scrollWidth <= root.clientWidth) return [];
    const scrolls = e => { for (e = e.parentElement; e && e !== document.body; e = e.parentElement) if (getComputedStyle(e).overflowX !== 'visible') return true; return false; };
    const out = [...document.body.querySelectorAll('*')].filter(e => e.getBoundingClientRect().right > root.clientWidth + 1 && !scrolls(e));
    return [`${root.scrollWidth} pixels in a window of ${root.clientWidth}`].concat(out.slice(-3).map(name));
  };

  // Returns mistakes that confuse screen readers.
  const structure = () => {
    const found = [], ids = [...document.querySelectorAll('[id]')].map(e => e.id);
    for (const id of new Set(ids.filter((id, i) => ids.indexOf(id) !== i))) found.push('two have the id ' + id);
    if (document.querySelectorAll('h1').length !== 1) found.push(document.querySelectorAll('h1').length + ' first headings');
    let level = 1;
    for (const h of document.querySelectorAll('main :is(h1, h2, h3, h4)')) {
      const now = Number(h.tagName[1]);
      if (now > level + 1) found.push(`${name(h)} follows a heading of level ${level}`);
      level = now;
    }
    for (const of of document.querySelectorAll('label[for], [aria-labelledby]')) {
      const id = of.htmlFor || of.getAttribute('aria-labelledby');
      if (!document.getElementById(id)) found.push(`${name(of)} names ${id}, which isn't there`);
    }
    if (!document.documentElement.lang || !document.title) found.push('no language, or no title');
    return found;
  };

  // follow records the order in which the focus moves, and whether users can see where it is.
  const follow = () => {
    const all = 'a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex="0"]';
    const order = [...document.querySelectorAll(all)].filter(e => !e.disabled && (seen(e) || e.matches('.skip')));
    const reached = [], unseen = [];
    document.addEventListener('focusin', event => {
      const e = event.target, style = getComputedStyle(e);
      reached.push(order.indexOf(e));
      if (style.outlineStyle === 'none' || parseFloat(style.outlineWidth) < 1) unseen.push(name(e));
    });
    document.activeElement?.blur();
    getSelection().removeAllRanges();
    window.worqrFocus = () => ({
      missed: order.filter((e, i) => !reached.includes(i)).map(name),
      strange: reached.some((n, i) => n !== i) ? [reached.join(' ')] : [], unseen,
    });
    return order.length;
  };

  window.worqrChecks = { contrast, sideways, structure, follow, unfold: () => { for (const d of document.querySelectorAll('details')) d.open = true; } };
})();
