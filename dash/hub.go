package dash

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// A hub has the last snapshot, reads the next one when it's needed, and updates the watchers.
type hub struct {
	interval time.Duration
	seen     func(*snapshot) // called with each snapshot that is shown

	fleet fleet // used only by the reading in progress

	mu       sync.Mutex // protects the fields below
	last     *snapshot
	tried    time.Time     // when reading last began
	reading  chan struct{} // closed when the reading in progress ends; nil if there is none
	past     history       // of all queues together
	watchers map[*watcher]bool
	rests    map[string]time.Time // pages that aren't rendered before this time
	looping  bool
	woken    chan struct{} // has room for one; nil before the first loop
}

// How long a page waits for a snapshot: if there is none yet, if there is an older one, and for one that
// shows what an action did.
const (
	firstPatience = time.Second
	patience      = 200 * time.Millisecond
	afterAction   = time.Second
)

// current returns the newest snapshot that is available soon. It's never nil.
func (h *hub) current(ctx context.Context) *snapshot {
	h.mu.Lock()
	last, wait := h.last, patience
	switch {
	case last == nil || last.At.IsZero() && last.err == nil:
		wait = firstPatience
	case time.Since(h.tried) < max(h.interval, 2*last.Took): // it's new
		h.mu.Unlock()
		return last
	}
	done := h.readLocked()
	h.mu.Unlock()
	await(ctx, done, wait)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last == nil {
		return &snapshot{err: errNotYet}
	}
	return h.last
}

// await waits for done to be closed, for at most limit. It reports whether it was.
func await(ctx context.Context, done <-chan struct{}, limit time.Duration) bool {
	ctx, end := context.WithTimeout(ctx, limit)
	defer end()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

const errNotYet = sentence("Redis hasn't answered yet")

// readLocked starts a reading, unless one is in progress, and returns a channel that is closed at its end.
func (h *hub) readLocked() chan struct{} {
	if h.reading != nil {
		return h.reading
	}
	done := make(chan struct{})
	h.reading, h.tried = done, time.Now()
	last := h.last
	if last == nil {
		last = &snapshot{}
	}
	go func() {
		next := h.fleet.read(context.Background(), last)
		past := h.fleet.all
		h.mu.Lock()
		h.last, h.past, h.reading = next, past, nil
		h.mu.Unlock()
		close(done)
	}()
	return done
}

// refresh reads a snapshot that is newer than this call, unless that takes too long.
func (h *hub) refresh(ctx context.Context) {
	for range 2 { // the one in progress may be older
		h.mu.Lock()
		done := h.readLocked()
		h.mu.Unlock()
		await(ctx, done, afterAction)
	}
	h.wake()
}

func (h *hub) history() history {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.past
}

// A watcher is an open page in a browser.
type watcher struct {
	visitor string
	end     func()                                           // ends the stream
	search  string                                           // the id of the search that the page shows; "" if there is none
	page    string                                           // watchers with the same text show the same page
	make    func(context.Context, *snapshot) (blocks, error) // returns what the page shows now
	told    chan blocks                                      // holds one: only the latest counts
}

// lingering is how long the loop continues without watchers, so that changing pages leaves no gap in the
// charts. Tests shorten it.
var lingering = 5 * time.Second

// mostWatchers limits the streams. Pages without one don't change until they're reloaded.
const mostWatchers = 200

// watch adds a watcher, and starts the loop if it's the first one. If there are too many, it replaces one of the
// visitor who has the most, unless that would only reverse who has more.
func (h *hub) watch(w *watcher) (ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.watchers) >= mostWatchers {
		n := map[string]int{}
		for o := range h.watchers {
			n[o.visitor]++
		}
		last := w
		for o := range h.watchers {
			if n[o.visitor] > n[last.visitor]+1 || last != w && n[o.visitor] > n[last.visitor] {
				last = o
			}
		}
		if last == w {
			return false
		}
		delete(h.watchers, last)
		last.end()
	}
	if h.watchers == nil {
		h.watchers, h.rests, h.woken = map[*watcher]bool{}, map[string]time.Time{}, make(chan struct{}, 1)
	}
	h.watchers[w] = true
	if !h.looping {
		h.looping = true
		go h.loop()
	}
	return true
}

// shows reports whether an open page shows a search.
func (h *hub) shows(search string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.watchers {
		if w.search == search {
			return true
		}
	}
	return false
}

func (h *hub) leave(w *watcher) {
	h.mu.Lock()
	delete(h.watchers, w)
	last := len(h.watchers) == 0
	h.mu.Unlock()
	if last { // the loop may be in a long pause
		h.wake()
	}
}

// wake makes the loop continue now.
func (h *hub) wake() {
	h.mu.Lock()
	woken := h.woken
	h.mu.Unlock()
	select {
	case woken <- struct{}{}:
	default: // no one watches, or it's awake
	}
}

// loop sends changes to the watchers, until there have been none for a while.
func (h *hub) loop() {
	watched := time.Now()
	for {
		h.mu.Lock()
		if len(h.watchers) > 0 {
			watched = time.Now()
		} else if time.Since(watched) > lingering {
			h.looping = false
			h.mu.Unlock()
			return
		}
		done := h.readLocked()
		h.mu.Unlock()
		<-done
		h.mu.Lock()
		now, all := h.last, maps.Clone(h.watchers)
		h.mu.Unlock()
		h.seen(now)
		h.tell(now, all)
		pause := max(h.interval, 20*now.Took) // so that reading takes at most a twentieth of the time
		if now.err != nil {
			pause = max(pause, 2*time.Second)
		}
		if len(all) == 0 {
			pause = min(pause, lingering)
		}
		timer := time.NewTimer(min(pause, time.Minute))
		select {
		case <-timer.C:
		case <-h.woken:
			timer.Stop()
		}
	}
}

// slowPage is how long the other pages wait for one that is being rendered: a function of Options may hang. After
// slowPages, the rest waits for the next snapshot.
const (
	slowPage  = 500 * time.Millisecond
	slowPages = 2 * time.Second
)

// tell renders each page once, and sends it to its watchers: pages of visitors with many open ones last, since there
// may not be time for all. A page that reads long lists takes at most a fifth of the time: rests has the time before
// which it isn't rendered again.
func (h *hub) tell(now *snapshot, all map[*watcher]bool) {
	tick, end := context.WithTimeout(context.Background(), slowPages)
	defer end()
	pages, open := map[string][]*watcher{}, map[string]int{}
	for w := range all {
		pages[w.page] = append(pages[w.page], w)
		open[w.visitor]++
	}
	fewest := func(page string) int {
		return open[slices.MinFunc(pages[page], func(a, b *watcher) int { return open[a.visitor] - open[b.visitor] }).visitor]
	}
	h.mu.Lock()
	maps.DeleteFunc(h.rests, func(_ string, until time.Time) bool { return until.Before(time.Now()) })
	maps.DeleteFunc(pages, func(page string, _ []*watcher) bool { return !h.rests[page].IsZero() })
	h.mu.Unlock()
	for _, page := range slices.SortedFunc(maps.Keys(pages), func(a, b string) int { return fewest(a) - fewest(b) }) { // otherwise in random order
		if tick.Err() != nil {
			return
		}
		of := pages[page]
		h.rest(page, 24*time.Hour) // one at a time
		done := make(chan struct{})
		go func() {
			defer close(done)
			ctx, end := context.WithTimeout(context.Background(), readTimeout)
			defer end()
			began := time.Now()
			b, err := of[0].make(ctx, now)
			if err == nil { // otherwise the page shows the error when it's reloaded; its banners explain it
				for _, w := range of {
					select {
					case <-w.told: // it's slow
					default:
					}
					w.told <- b
				}
			}
			h.rest(page, 4*time.Since(began))
		}()
		await(tick, done, slowPage)
	}
}

func (h *hub) rest(page string, d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rests[page] = time.Now().Add(d)
}
