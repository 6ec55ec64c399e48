// The pages work without this. It keeps them up to date, shows values where the pointer is on a
// chart, asks for names before something is deleted, and remembers the theme.
'use strict';
(() => {
  const root = document.documentElement;
  const recall = name => { try { return localStorage.getItem(name); } catch { return null; } };
  const keep = (name, value) => { try { localStorage.setItem(name, value); } catch { /* it's forbidden */ } };

  const themes = ['system', 'light', 'dark'];
  const theme = () => themes.includes(recall('worqr-theme')) ? recall('worqr-theme') : 'system';
  const paint = () => { root.dataset.theme = theme(); };
  paint(); // before anything is drawn

  document.addEventListener('DOMContentLoaded', () => {
    themeButton();
    confirmations();
    choices();
    keys();
    charts();
    live();
  });

  function themeButton() {
    const button = document.getElementById('theme');
    const word = button.querySelector('.word');
    const label = () => { word.textContent = { system: 'Auto', light: 'Light', dark: 'Dark' }[theme()]; button.ariaLabel = 'Theme: ' + word.textContent; };
    button.hidden = false;
    label();
    button.addEventListener('click', () => {
      keep('worqr-theme', themes[(themes.indexOf(theme()) + 1) % themes.length]);
      paint();
      label();
    });
  }

  // A form that deletes can be sent once the name has been typed. The server checks it, too.
  function confirmations() {
    for (const form of document.querySelectorAll('form[data-confirm]')) {
      const typed = form.elements.confirm;
      if (!typed) continue;
      const button = form.querySelector('button');
      const check = () => { button.disabled = typed.value !== form.dataset.confirm; };
      typed.addEventListener('input', check);
      check();
    }
  }

  function choices() {
    const all = document.getElementById('all');
    if (!all) return;
    all.parentElement.hidden = false;
    all.addEventListener('change', () => {
      for (const box of document.querySelectorAll('input[name=id]')) box.checked = all.checked;
    });
  }

  function keys() {
    document.addEventListener('keydown', event => {
      if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
      const search = document.querySelector('input[type=search]');
      if (search) { event.preventDefault(); search.focus(); search.select(); }
    });
  }

  // measure writes a value as the server does.
  function measure(value, unit) {
    if (unit === 's') {
      const two = (large, a, small, b) => large + ' ' + a + (small ? ' ' + small + ' ' + b : '');
      if (value < 1) return Math.round(value * 1000) + ' ms';
      if (value < 59.5) return (value < 10 ? Number(value.toFixed(1)) : Math.round(value)) + ' s';
      const [by, large, small, unit2] = value < 3600 ? [60, 'min', 1, 's'] : value < 86400 ? [3600, 'h', 60, 'min'] : [86400, 'd', 3600, 'h'];
      return two(Math.floor(value / by), large, Math.floor(value % by / small), unit2);
    }
    const number = value >= 10 || Number.isInteger(value) ? Math.round(value).toLocaleString('en') : value.toFixed(1);
    return unit === '/s' ? number + '/s' : number;
  }

  // charts shows the values below the pointer. The points of the lines are the values themselves.
  function charts() {
    const tip = document.createElement('div');
    tip.id = 'tip';
    tip.hidden = true;
    document.body.append(tip);
    let chart = null, x = 0;
    const hide = () => { tip.hidden = true; chart?.querySelector('.cursor')?.remove(); chart = null; };
    const show = () => {
      if (!chart.isConnected) return hide();
      const box = chart.getBoundingClientRect();
      const span = Number(chart.dataset.span), at = (x - box.left) / box.width * span - span;
      const rows = [];
      let near = null;
      for (const line of chart.querySelectorAll('polyline')) {
        const points = Array.from(line.points);
        if (!points.length || at < points[0].x - span / 150) continue;
        let i = points.findIndex(p => p.x >= at);
        if (i < 0) i = points.length - 1;
        const b = points[i], a = points[Math.max(0, i - 1)];
        const p = Math.abs(b.x - at) < Math.abs(a.x - at) ? b : a;
        near ??= p.x;
        rows.push(measure(p.y, chart.dataset.unit) + ' ' + line.dataset.name);
      }
      if (!rows.length) { tip.hidden = true; return; }
      for (const mark of chart.querySelectorAll('.deploy')) if (Math.abs(mark.getBoundingClientRect().x - x) < 6) rows.push(mark.textContent);
      const ago = Math.round(-near);
      tip.replaceChildren(...[...rows, ago < 1 ? 'now' : measure(ago, 's') + ' ago'].map(text => {
        const row = document.createElement('div');
        row.textContent = text;
        return row;
      }));
      let cursor = chart.querySelector('.cursor');
      if (!cursor) {
        cursor = document.createElementNS('http://www.w3.org/2000/svg', 'line');
        cursor.setAttribute('class', 'cursor');
        cursor.setAttribute('y2', '100%');
        chart.append(cursor);
      }
      const left = (near + span) / span * 100 + '%';
      cursor.setAttribute('x1', left);
      cursor.setAttribute('x2', left);
      tip.hidden = false;
      const w = tip.offsetWidth;
      tip.style.left = Math.min(Math.max(4, x + 12 + w > innerWidth ? x - w - 12 : x + 12), innerWidth - w - 4) + scrollX + 'px';
      tip.style.top = box.top + scrollY + 'px';
    };
    document.addEventListener('pointermove', event => {
      const over = event.target.closest?.('.chart > svg');
      if (over !== chart) hide();
      if (over) { chart = over; x = event.clientX; show(); }
    });
    document.addEventListener('pointerleave', hide);
    document.addEventListener('worqr-update', () => { if (chart) show(); });
  }

  // live replaces the parts of the page that have changed. While the page is hidden, it closes the
  // stream. While something is pressed, updates wait: if it moved or were replaced, nothing would be
  // clicked.
  function live() {
    const from = document.body.dataset.stream, button = document.getElementById('live');
    if (!from || !window.EventSource) return;
    const word = button.querySelector('.word');
    let source = null, wanted = recall('worqr-live') !== 'no', pressed = null, changed = {};
    const say = state => {
      button.dataset.state = state;
      word.textContent = { live: 'Live', paused: 'Paused', away: 'Reconnecting' }[state];
      button.ariaPressed = String(wanted);
    };
    const close = () => { source?.close(); source = null; };
    const open = () => {
      close();
      if (!wanted) return say('paused');
      if (document.hidden) return;
      source = new EventSource(from);
      source.onopen = () => say('live');
      source.onerror = () => {
        say('away');
        if (source?.readyState === EventSource.CLOSED) { close(); setTimeout(() => { if (!source) open(); }, 10000); }
      };
      source.onmessage = event => { Object.assign(changed, JSON.parse(event.data)); update(); };
    };
    const update = () => {
      if (pressed) return;
      for (const [id, html] of Object.entries(changed)) {
        const old = document.getElementById(id);
        if (!old) continue;
        const next = document.createElement('template');
        next.innerHTML = html; // the server has escaped it, and the policy allows no inline code
        morph(old, next.content);
      }
      changed = {};
      document.dispatchEvent(new Event('worqr-update'));
    };
    const released = () => {
      const over = pressed;
      setTimeout(() => { if (pressed === over) { pressed = null; update(); } }, over?.pointerType === 'touch' ? 300 : 0); // after the click
    };
    addEventListener('pointerdown', event => { if (event.isPrimary) pressed = event.button === 0 ? event : null; });
    addEventListener('pointermove', event => { if (pressed && !(event.buttons & 1)) released(); }); // not every release is reported
    for (const end of ['pointerup', 'pointercancel', 'contextmenu', 'dragend', 'blur', 'pageshow']) addEventListener(end, released);
    button.hidden = false;
    button.addEventListener('click', () => { wanted = !wanted; keep('worqr-live', wanted ? 'yes' : 'no'); open(); });
    document.addEventListener('visibilitychange', () => document.hidden ? close() : open());
    addEventListener('pagehide', close);
    addEventListener('pageshow', event => { if (event.persisted) open(); });
    say(wanted ? 'away' : 'paused');
    open();
  }

  // morph gives a part of the page the children of another one, and keeps those that are the same, so
  // focus, selections, typed text, open details and ticked boxes stay. What has an identity keeps its
  // state wherever it goes; only the focus is lost if it must move.
  function morph(part, fresh) {
    const all = node => Array.from(node.querySelectorAll('details, li, tr')).filter(identity);
    const known = new Map(all(part).map(e => [identity(e), e])), wanted = new Set(all(fresh).map(identity));
    const take = id => { const e = known.get(id); known.delete(id); return e; };
    const become = (old, now) => {
      if (old.nodeType !== Node.ELEMENT_NODE) { if (old.data !== now.data) old.data = now.data; return; }
      for (const a of Array.from(old.attributes)) if (!now.hasAttribute(a.name) && a.name !== 'open') old.removeAttribute(a.name);
      for (const a of now.attributes) if (old.getAttribute(a.name) !== a.value) old.setAttribute(a.name, a.value);
      children(old, now);
    };
    const children = (to, from) => {
      let old = to.firstChild;
      const drop = () => { const next = old.nextSibling; old.remove(); old = next; };
      for (const now of Array.from(from.childNodes)) {
        const elsewhere = take(identity(now)), kept = old && same(old, now) ? old : elsewhere;
        if (!kept) {
          to.insertBefore(now, old);
          if (now.nodeType === Node.ELEMENT_NODE) for (const inner of all(now)) {
            const e = take(identity(inner));
            if (e) { inner.replaceWith(e); become(e, inner); }
          }
          if (old && !identity(old)) drop();
          continue;
        }
        while (kept.parentNode === to && old !== kept && !(identity(old) && wanted.has(identity(old)))) drop();
        if (old === kept) old = kept.nextSibling;
        else to.insertBefore(kept, old);
        become(kept, now);
      }
      while (old) drop();
    };
    children(part, fresh);
  }

  function same(a, b) { return a.nodeType === b.nodeType && a.nodeName === b.nodeName && identity(a) === identity(b); }

  // identity distinguishes nodes that have state of their own. What is typed doesn't count.
  function identity(node) {
    const sent = input => input.name + '=' + input.getAttribute('value');
    switch (node.nodeName) {
    case 'INPUT': return sent(node);
    case 'DETAILS': return node.dataset.key ?? '';
    case 'LI': case 'TR': return node.dataset.worker ?? node.dataset.queue ?? Array.from(node.querySelectorAll('input'), sent).join();
    default: return '';
    }
  }
})();
