package browser

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/dash"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

// evil are texts that try to be code.
var evil = []string{
	`<script>window.pwned=1;alert(1)</script>`,
	`"><img src=x onerror="window.pwned=1"><svg onload="window.pwned=1">`,
	`' onmouseover='window.pwned=1' autofocus onfocus='window.pwned=1' x='`,
	"</textarea></title></style></script><script>window.pwned=1</script>",
	`javascript:window.pwned=1`, `{{.}}${window.pwned=1}`, "data: {}\n\nevent: x\ndata: <script>window.pwned=1</script>",
	"\u202egnp.exe \u2066\u200b\ufeff\u0000\u001b[31mred\u001b[0m\u0007", "\xff\xfe\x00\x01\x80binary",
}

// Text from outside stays text, wherever it appears and however it got there: no script in it runs, it loads
// nothing, and the page keeps its width.
func TestHostile(t *testing.T) {
	f := newFleet(t)
	name := "<script>window.pwned=1</script>\"'><img/src=x/onerror=window.pwned=1>" + strings.Repeat("W", 150)
	w := peertest.Open(t, worqr.Options{Prefix: f.prefix, Name: evil[1]})
	q := peertest.Working(t, w, name)
	peertest.Enqueue(t, q, "held "+evil[0])
	peertest.Take(t, q)
	for i, e := range evil {
		fail(t, q, e, fmt.Sprint(i, " ", strings.ToValidUTF8(e, "?")))
		peertest.Add(t, q, worqr.TaskSpec{Key: fmt.Sprint(i, e), Payload: []byte(e), At: time.Now().Add(time.Hour)})
		redistest.Sure(q.Add(t.Context(), worqr.TaskSpec{Payload: []byte(e), Headers: map[string]string{"h" + fmt.Sprint(i): strings.ToValidUTF8(e, "?")}}))(t)
	}
	huge := strings.Repeat("<b onclick=window.pwned=1>", 40_000) // about 1 MB
	peertest.Add(t, q, worqr.TaskSpec{Key: "huge", Payload: []byte(huge), At: time.Now().Add(2 * time.Hour)})
	fail(t, q, huge, huge)
	peertest.Enqueue(t, q, evil...)

	b := open(t, f.peer, dash.Options{Title: evil[0], AllowActions: true, Interval: 100 * time.Millisecond})
	b.size(360, 740)
	n := url.QueryEscape(name)
	pages := b.pages()
	pages = append(pages, "?q="+n, "workers?q="+n, "failed?name="+n+"&reason="+url.QueryEscape(evil[1]), "failed?name="+n+"&payload="+url.QueryEscape(evil[0]),
		"task?name="+n+"&key=huge", "task?name="+n+"&header="+url.QueryEscape("x: "+evil[0]), "recurring?q="+url.QueryEscape(evil[0]))
	for i, e := range evil {
		pages = append(pages, "task?name="+n+"&key="+url.QueryEscape(fmt.Sprint(i, e)))
	}
	for _, page := range pages {
		b.visit(page)
		b.harmless(page)
	}
	b.visit("queue?name=" + n)
	b.until("the page is live", `document.getElementById('live').dataset.state === 'live'`)
	peertest.Enqueue(t, q, "came later "+evil[1]) // through the stream
	b.reads("came later")
	b.harmless("live")
	b.clean("hostile")

	b.visit("queue?name=" + url.QueryEscape(`<script>window.pwned=1</script>`))
	b.harmless("not found")
	b.visit(url.PathEscape(`<script>window.pwned=1<`))
	b.harmless("no page")
	b.clean("errors", "status of 404")
}

// harmless checks that a page contains only the dashboard's own elements.
func (b *tab) harmless(page string) {
	b.t.Helper()
	if len(page) > 80 {
		page = page[:80] + "…"
	}
	for what, wrong := range map[string]string{
		"a script ran":              `!!window.pwned`,
		"a script is there":         `document.scripts.length !== 1`,
		"a picture is there":        `document.images.length > 0 || document.querySelectorAll('iframe, object, embed, style, base, meta[http-equiv]').length > 0`,
		"code is inline":            `[...document.querySelectorAll('*')].some(e => [...e.attributes].some(a => a.name.startsWith('on') || a.name === 'style' || a.name === 'srcdoc'))`,
		"a link is external":        `[...document.links].some(a => !a.href.startsWith(` + quote(b.base) + `))`,
		"the page is too big":       `document.documentElement.outerHTML.length > 3e6`,
		"text may change direction": `/[\u202a-\u202e\u2066-\u2069]/.test(document.body.innerText)`,
	} {
		if ask[bool](b, wrong) {
			b.t.Errorf("%q: %s", page, what)
		}
	}
	ask[any](b, checks)
	b.finds(page, "sideways")
}
