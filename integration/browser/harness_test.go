package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/dash"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

// A tab shows a dashboard.
type tab struct {
	t    testing.TB
	ctx  context.Context
	base string // of the dashboard, with a slash at the end

	said chan chromedp.ConsoleMessage
}

// open mounts a dashboard and opens a tab.
func open(t testing.TB, p *worqr.Peer, opts dash.Options) *tab {
	t.Helper()
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	mux := http.NewServeMux()
	mux.Handle("/ops/worqr/", dash.New(p, &opts))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections) // streams
	ctx, end := chromedp.NewContext(chrome)
	t.Cleanup(end)
	bounded, cancel := context.WithTimeout(ctx, peertest.Patience)
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: bounded, base: server.URL + "/ops/worqr/", said: make(chan chromedp.ConsoleMessage, 1000)}
	go b.hear(chromedp.Console(bounded))    // subscribes here
	call(b, page.BringToFront, cdp.Empty{}) // otherwise nothing is painted
	call(b, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	return b
}

// call sends a command of the protocol.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	return redistest.Sure(chromedp.Call(b.ctx, command, params))(b.t)
}

// hear sends the messages of the console: errors, warnings, exceptions, violations of the policy, and failed
// requests.
func (b *tab) hear(messages iter.Seq2[chromedp.ConsoleMessage, error]) {
	defer close(b.said)
	for m, err := range messages {
		if err != nil {
			return // the tab is closed
		}
		switch m.Type {
		case chromedp.ConsoleError, chromedp.ConsoleWarning, chromedp.ConsoleException:
			select {
			case b.said <- m:
			case <-b.ctx.Done():
				return
			}
		}
	}
}

func (b *tab) run(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	peertest.Must(b.t, chromedp.Do(b.ctx, steps...))
}

// visit opens a page of the dashboard, and waits until its script has run.
func (b *tab) visit(page string) {
	b.t.Helper()
	b.run(chromedp.Navigate(b.base + page))
	b.loaded()
}

func (b *tab) loaded() {
	b.t.Helper()
	b.until("the page has loaded", `document.readyState === 'complete' && !!document.querySelector('main')`)
}

// ask evaluates an expression.
func ask[T any](b *tab, expression string) T {
	b.t.Helper()
	return redistest.Sure(chromedp.Run(b.ctx, chromedp.Evaluate[T](expression)))(b.t)
}

// until waits until an expression is true. It keeps asking even if the page changes meanwhile.
func (b *tab) until(what, expression string) {
	b.t.Helper()
	eventually(b.t, what, func() bool {
		holds, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](expression))
		return err == nil && holds
	})
}

// patience limits a wait. It's far longer than anything takes, even on a busy machine.
const patience = 30 * time.Second

// eventually waits until holds returns true.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(10 * time.Millisecond) { // polls
		if time.Now().After(end) {
			t.Fatal("timed out: ", what)
		}
	}
}

// quote returns s as a JavaScript string.
func quote(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// reads waits until the page shows the texts.
func (b *tab) reads(texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		b.until(fmt.Sprintf("the page %s reads %q", b.url(), text), `document.body.innerText.replace(/\s+/g, ' ').toLowerCase().includes(`+quote(strings.ToLower(text))+`)`)
	}
}

// url returns the current page, without the base.
func (b *tab) url() string {
	return strings.TrimPrefix(ask[string](b, "location.href"), b.base)
}

// clean checks that the console has had no messages since the last check, other than those that contain one of
// the exceptions. Messages come in order, so it adds one of its own to find the end.
func (b *tab) clean(what string, except ...string) {
	b.t.Helper()
	const end = "that was all"
	ask[any](b, `console.error(`+quote(end)+`)`)
	for m := range b.said {
		if m.Text == end {
			return
		}
		if slices.ContainsFunc(except, func(e string) bool { return strings.Contains(m.Text, e) }) {
			continue
		}
		b.t.Errorf("%s: the console says: %s %s", what, m, m.URL)
	}
}

// still turns live updates off, with the button, so that nothing changes while a page is inspected.
func (b *tab) still() {
	b.t.Helper()
	b.visit("")
	b.until("the page is live", `document.getElementById('live').dataset.state === 'live'`) // the button has its width
	b.click(`document.getElementById('live')`)
	b.until("updates are off", `document.getElementById('live').dataset.state === 'paused'`)
}

// size sets the size of the window.
func (b *tab) size(width, height int64) {
	b.t.Helper()
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 500})
}

// scheme sets the preference of the system: light or dark.
func (b *tab) scheme(name string) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
}

// pages follows the links of the dashboard from its first page, and returns one page of each kind:
// links that differ only in values lead to the same one.
func (b *tab) pages() (all []string) {
	b.t.Helper()
	seen := map[string]bool{}
	next := []string{""}
	for len(next) > 0 {
		at := next[0]
		next = next[1:]
		kind := kindOf(at)
		if seen[kind] {
			continue
		}
		seen[kind] = true
		b.visit(at)
		all = append(all, at)
		for _, link := range ask[[]string](b, `[...document.links].map(a => a.href.split('#')[0])`) {
			if page, ours := strings.CutPrefix(link, b.base); ours {
				next = append(next, page)
			}
		}
	}
	return all
}

// kindOf returns a page without the values that don't affect its kind.
func kindOf(page string) string {
	path, query, _ := strings.Cut(page, "?")
	var names []string
	for _, part := range strings.Split(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		switch name {
		case "tab":
			names = append(names, part)
		case "sort", "from", "page", "q", "did", "n", "":
		default:
			if value != "" {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return path + "?" + strings.Join(names, "&")
}
