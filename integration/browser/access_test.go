package browser

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/worqr/worqr/dash"
)

//go:embed checks.js
var checks string

// unfolded opens a page and all its folded parts.
func (b *tab) unfolded(page string) {
	b.t.Helper()
	b.visit(page)
	ask[any](b, checks)
	ask[any](b, `worqrChecks.unfold()`)
}

// finds reports the violations that a check finds.
func (b *tab) finds(page, check string) {
	b.t.Helper()
	for _, what := range ask[[]string](b, "worqrChecks."+check+"()") {
		b.t.Errorf("%q: %s: %s", page, check, what)
	}
}

var sizes = []struct{ width, height int64 }{{1280, 800}, {768, 1024}, {360, 740}}

// Every page logs nothing to the console, has text with enough contrast, light and dark, and fits a large
// window, a tablet and a phone.
func TestEveryPage(t *testing.T) {
	f := stage(t)
	b := open(t, f.peer, dash.Options{Title: "acme", AllowActions: true})
	b.still()
	pages := b.pages()
	b.clean("links")
	for _, page := range append(pages, "nosuch", "queue?name=nosuch", "failed?name=emails&reason=%5B", "task?name=emails&key=gone") {
		b.unfolded(page)
		b.finds(page, "structure")
		for _, name := range b.unnamed() {
			t.Errorf("%q: no name: %s", page, name)
		}
		for _, s := range sizes {
			b.size(s.width, s.height)
			b.finds(fmt.Sprintf("%s (%d pixels)", page, s.width), "sideways")
		}
		for _, scheme := range []string{"light", "dark"} {
			b.scheme(scheme)
			b.finds(page+" ("+scheme+")", "contrast")
		}
	}
	b.clean("all pages", "status of 404")
	t.Logf("%d pages: %s", len(pages), strings.Join(pages, ", "))
}

// roles lists the roles of elements that users operate or look at, so they need a name.
var roles = map[string]bool{
	"button": true, "link": true, "textbox": true, "searchbox": true, "combobox": true, "listbox": true, "checkbox": true, "radio": true,
	"DisclosureTriangle": true, "image": true, "img": true, "region": true, "navigation": true, "meter": true, "spinbutton": true, "switch": true,
}

// unnamed returns the elements without a name for screen readers.
func (b *tab) unnamed() (all []string) {
	b.t.Helper()
	tree := call(b, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	counted := 0
	for _, n := range tree.Nodes {
		if n.Ignored || n.Role == nil || !roles[word(n.Role)] {
			continue
		}
		counted++
		if n.Name == nil || strings.TrimSpace(word(n.Name)) == "" {
			all = append(all, fmt.Sprintf("%s, node %d", word(n.Role), n.BackendDOMNodeID))
		}
	}
	if counted < 5 { // each page has at least its links
		b.t.Errorf("only %d things to use on %s", counted, b.url())
	}
	return all
}

func word(v *accessibility.Value) string { return strings.Trim(string(v.Value), `"`) }

// The Tab key reaches every control, in reading order, and the focus is visible.
func TestKeyboard(t *testing.T) {
	f := stage(t)
	b := open(t, f.peer, dash.Options{AllowActions: true})
	b.still()
	b.size(1280, 800)
	for _, page := range b.pages() {
		b.unfolded(page)
		n := ask[int](b, `worqrChecks.follow()`)
		tabs := make([]chromedp.Action[chromedp.Void], n)
		for i := range tabs {
			tabs[i] = chromedp.KeyEvent(kb.Tab)
		}
		b.run(tabs...)
		got := ask[map[string][]string](b, `worqrFocus()`)
		for what, all := range got {
			for _, e := range all {
				t.Errorf("%q: %s: %s", page, what, e)
			}
		}
	}
	// An action, without a mouse.
	b.visit("queue?name=emails")
	ask[any](b, `[...document.querySelectorAll('button')].find(e => e.value === 'pause').focus()`)
	b.leaves(func() { b.run(chromedp.KeyEvent(kb.Enter)) })
	b.reads("the queue is paused")
	stats, err := f.emails.Stats(t.Context())
	if err != nil || !stats.Paused {
		t.Fatal("it isn't paused:", err)
	}
	b.visit("")
	b.run(chromedp.KeyEvent("/"))
	b.until("/ leads to the search", `document.activeElement.type === 'search'`)
}
