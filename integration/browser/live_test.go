package browser

import (
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/dash"
	"github.com/worqr/worqr/internal/peertest"
)

// same checks that the page wasn't reloaded since it was marked.
func (b *tab) same(what string) {
	b.t.Helper()
	if !ask[bool](b, `window.worqrOld === true`) {
		b.t.Errorf("%s: the page was loaded again", what)
	}
}

// Changes in the fleet appear on each page without a reload, and the user's state stays: a ticked box, typed
// text, unfolded parts, and the focus.
func TestLive(t *testing.T) {
	f := stage(t)
	q := f.emails
	b := open(t, f.peer, dash.Options{AllowActions: true, Interval: 100 * time.Millisecond})
	look := func(page string) {
		b.visit(page)
		ask[any](b, `window.worqrOld = true`)
		b.until("the page is live", `document.getElementById('live').dataset.state === 'live'`)
	}
	look("queue?name=emails")
	b.click(`document.getElementById('payload')`)
	call(b, input.InsertText, input.InsertTextParams{Text: "half a task"})
	peertest.Enqueue(t, q, "just now")
	b.reads("just now")
	b.same("a new task")
	if got := ask[string](b, `document.activeElement.id + ' ' + document.activeElement.value`); got != "payload half a task" {
		t.Errorf("after an update, %q has the focus", got)
	}
	peertest.Must(t, q.Pause(t.Context()))
	b.until("it offers to resume", `!!(`+find("resume")+`)`)
	b.same("a pause")
	peertest.Must(t, q.Resume(t.Context()))

	look("failed?name=emails")
	b.click(`document.querySelectorAll('input[name=id]')[1]`)
	chosen := ask[string](b, `document.querySelectorAll('input[name=id]')[1].value`)
	b.click(`[...document.querySelectorAll('summary')].find(s => s.innerText.includes('Delete all'))`)
	fail(t, q, "newer", "disk full again")
	b.reads("4 failed tasks")
	b.same("a new failure")
	if !ask[bool](b, `[...document.querySelectorAll('input[name=id]:checked')].map(e => e.value).join() === `+quote(chosen)) {
		t.Error("after an update, another box is ticked, or none")
	}
	if !ask[bool](b, `[...document.querySelectorAll('summary')].find(s => s.innerText.includes('Delete all')).parentElement.open`) {
		t.Error("an update has folded something")
	}

	look("workers")
	f.worker("newcomer", "fresh")
	b.reads("newcomer")
	b.same("a new worker")
	look("")
	peertest.Enqueue(t, f.peer.Queue("sudden"), "x")
	b.reads("sudden", "no worker")
	b.same("a new queue")
	b.clean("live updates")

	// The button stops and resumes updates, and the choice persists.
	b.still()
	ask[any](b, `window.worqrOld = true`)
	peertest.Enqueue(t, f.peer.Queue("later"), "x")
	b.click(`document.getElementById('live')`)
	b.reads("later")
	b.same("pause and resume")
}

// A problem can be silenced while others appear above it: what is pressed is clicked, even if an update
// comes before the button of the mouse is released, and what is typed stays.
func TestBanners(t *testing.T) {
	f := newFleet(t)
	b := open(t, f.peer, dash.Options{AllowActions: true, Interval: 100 * time.Millisecond})
	b.visit("")
	b.until("the page is live", `document.getElementById('live').dataset.state === 'live'`)
	const form = `document.querySelector('li[data-kind=persistence] form')`
	b.until("there's a problem", `!!`+form)
	ask[any](b, `window.EventSource = class extends EventSource { // the next stream notes what the script has taken
		set onmessage(f) { super.onmessage = event => { f(event); window.worqrTook = (window.worqrTook ?? '') + event.data; }; }
	}`)
	for _, state := range []string{"paused", "live"} {
		b.click(`document.getElementById('live')`)
		b.until("updates are "+state, `document.getElementById('live').dataset.state === `+quote(state))
	}
	above := func(queue string) {
		peertest.Enqueue(t, f.peer.Queue(queue), "x")
		b.until("an update has come", `(window.worqrTook ?? '').includes(`+quote("name="+queue)+`)`)
	}
	at := b.aim(form+`.closest('details').querySelector('summary')`, "")
	mouse := input.DispatchMouseEventParams{Type: input.DispatchMouseEventTypeMousePressed, X: at[0], Y: at[1], Button: input.MouseButtonLeft, ClickCount: 1}
	call(b, input.DispatchMouseEvent, mouse)
	above("first")
	mouse.Type = input.DispatchMouseEventTypeMouseReleased
	call(b, input.DispatchMouseEvent, mouse)
	b.until("the form is unfolded", form+`.closest('details').open`)
	b.reads("first", "no worker")

	b.click(form + `.elements.reason`)
	call(b, input.InsertText, input.InsertTextParams{Text: "on purp"})
	above("second")
	b.until("a problem has come above", `document.querySelectorAll('li[data-kind=no-worker]').length > 0 && document.querySelector('#banners').innerText.includes('1 other queue')`)
	call(b, input.InsertText, input.InsertTextParams{Text: "ose"})
	third := peertest.Working(t, f.peer, "third")
	above("third")
	fail(t, third, "x", slices.Repeat([]string{"disk full"}, 40)...)
	b.until("there are more than are shown at first", `!!document.querySelector('#more-banners li[data-kind=persistence]')`)
	b.until("it's still there", form+`.elements.reason.value === 'on purpose' && `+form+`.closest('details.silence').open`)
	b.leaves(func() { b.click(form + `.querySelector('button')`) })
	_, silences, err := f.peer.Notes(t.Context())
	peertest.Must(t, err)
	if len(silences) != 1 || silences[0].Kind != "persistence" || silences[0].Reason != "on purpose" {
		t.Errorf("silenced: %+v", silences)
	}
	b.clean("a silence")
}

// An action that was unfolded doesn't become another one when the task starts.
func TestUnfolded(t *testing.T) {
	f := newFleet(t)
	q := f.worker("replica-1", "q")
	peertest.Add(t, q, worqr.TaskSpec{Key: "k", Payload: []byte("x")})
	b := open(t, f.peer, dash.Options{AllowActions: true, Interval: 100 * time.Millisecond})
	b.visit("task?name=q&key=k")
	b.click(`document.querySelector('details.cancel summary')`)
	peertest.Take(t, q)
	b.until("the task runs", `!!document.querySelector('details.return')`)
	if !ask[bool](b, `document.querySelector('details.cancel').open && !document.querySelector('details.return').open`) {
		t.Error("another action is unfolded")
	}
	b.clean("a start")
}

// The theme follows the system until the user chooses one, which persists.
func TestTheme(t *testing.T) {
	f := newFleet(t)
	b := open(t, f.peer, dash.Options{})
	paper := func() string { return ask[string](b, `getComputedStyle(document.body).backgroundColor`) }
	b.scheme("light")
	b.visit("")
	light := paper()
	b.scheme("dark")
	dark := paper()
	if light == dark {
		t.Error("light and dark are the same")
	}
	for _, want := range []string{"light", "dark"} {
		b.click(`document.getElementById('theme')`)
		b.until("the theme is "+want, `document.documentElement.dataset.theme === `+quote(want))
		is := map[string]string{"light": light, "dark": dark}[want]
		if got := paper(); got != is {
			t.Errorf("%s: the paper is %s, not %s", want, got, is)
		}
		b.visit("workers")
		if got := paper(); got != is {
			t.Errorf("%s, on the next page: the paper is %s, not %s", want, got, is)
		}
	}
	b.clean("themes")
}

// Without scripts the pages are readable, and the forms work.
func TestNoScript(t *testing.T) {
	f := stage(t)
	b := open(t, f.peer, dash.Options{AllowActions: true})
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.visit("queue?name=emails")
	b.reads("emails", "second", "actions are logged")
	b.acts("enqueue", "payload", "without a script")
	b.reads("the task is in the queue")
	b.reads("without a script")
	b.visit("failed?name=emails&reason=mailbox")
	b.reads("2 of 3 failed tasks match")
	b.clean("no script")
}
