package browser

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"github.com/worqr/worqr/dash"
)

// find returns an expression for the button of a verb, on the current page. That Redis is slow comes and goes on a busy machine, so it isn't silenced.
func find(verb string) string {
	return fmt.Sprintf(`[...document.querySelectorAll('form[action=act] button')].find(e => e.form.elements.kind?.value !== 'slow-redis' && (e.name === 'verb' ? e.value : e.form.elements.verb?.value) === %s)`, quote(verb))
}

// click presses the middle of an element, as a user does: it's unfolded, and nothing covers it.
// Updates of the page wait meanwhile, or the element might move away before it's pressed.
func (b *tab) click(element string) {
	b.t.Helper()
	place := b.aim(element, `dispatchEvent(new PointerEvent('pointerdown', { isPrimary: true }))`)
	b.run(chromedp.MouseClickXY(place[0], place[1]))
}

// aim scrolls to an element, does something, and returns the middle of the element.
func (b *tab) aim(element, do string) (place []float64) {
	b.t.Helper()
	place = ask[[]float64](b, `(() => {
		const e = `+element+`;
		for (let d = e.parentElement; d; d = d.parentElement) if (d.tagName === 'DETAILS' && e !== d.firstElementChild) d.open = true;
		e.scrollIntoView({ block: 'center', behavior: 'instant' });
		const box = e.getBoundingClientRect(), x = box.x + box.width / 2, y = box.y + box.height / 2;
		const hit = document.elementFromPoint(x, y);
		`+do+`;
		return e === hit || e.contains(hit) || hit?.contains(e) ? [x, y] : [];
	})()`)
	if len(place) != 2 {
		b.t.Fatalf("%s: something covers %s", b.url(), element)
	}
	return place
}

// enter types into a field of the form that has the button.
func (b *tab) enter(button, field, text string) {
	b.t.Helper()
	b.click(button + `.form.elements[` + quote(field) + `]`)
	call(b, input.InsertText, input.InsertTextParams{Text: text})
}

// leaves calls do, which must lead to another page, and waits for that page.
func (b *tab) leaves(do func()) {
	b.t.Helper()
	ask[any](b, `window.worqrOld = true`)
	do()
	b.until("another page follows", `!window.worqrOld && document.readyState === 'complete'`)
}

// acts fills in the form of a verb, and sends it. If the form asks for a name, it checks that the
// form can't be sent without one.
func (b *tab) acts(verb string, fields ...string) {
	b.t.Helper()
	button := find(verb)
	b.until(b.url()+" has a button that does "+verb, `!!(`+button+`)`)
	if ask[bool](b, `!!(`+button+`).form.elements.confirm`) {
		b.click(button + `.closest('details').querySelector('summary')`)
		if !ask[bool](b, button+`.disabled`) {
			b.t.Errorf("%s of %s can be sent without a name", verb, b.url())
		}
		b.enter(button, "confirm", ask[string](b, button+`.form.dataset.confirm`))
	}
	for i := 0; i < len(fields); i += 2 {
		b.enter(button, fields[i], fields[i+1])
	}
	b.leaves(func() { b.click(button) })
}

// Every action can be done with the mouse and has its effect, and there are no others.
func TestActions(t *testing.T) {
	f, held := stage(t), &brake{}
	b := open(t, f.peer, dash.Options{AllowActions: true, Interval: 100 * time.Millisecond, Payload: held.payload})
	b.size(1280, 1000)
	all := actions(f, b, held)
	tested := func(verb string) bool { return slices.ContainsFunc(all, func(d action) bool { return d.verb == verb }) }
	offered := map[string]bool{}
	look := func() {
		for _, verb := range ask[[]string](b, `[...document.querySelectorAll('form[action=act] button')].map(e => e.name === 'verb' ? e.value : e.form.elements.verb.value)`) {
			offered[verb] = true
		}
	}
	for _, page := range b.pages() {
		b.visit(page)
		look()
	}
	for _, d := range all {
		if d.before != nil {
			d.before()
		}
		b.visit(d.page)
		look()
		if d.on != nil {
			d.on()
			look()
		}
		b.acts(d.verb, d.fields...)
		b.reads(d.says)
		eventually(t, d.verb+" has its effect", d.so)
		b.clean(d.verb)
		look()
	}
	for verb := range offered {
		if !tested(verb) {
			t.Errorf("no test does %q", verb)
		}
	}
	for _, d := range all {
		if !offered[d.verb] {
			t.Errorf("no page offers %q", d.verb)
		}
	}
}
