package api

import (
	"iter"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

// Helpers that the tests of the root package and of integration/api share.
const (
	canary   = peertest.Canary
	far      = peertest.Far
	patience = peertest.Patience
)

type (
	journal = peertest.Journal
	tamper  = peertest.Tamper
	through = peertest.Through
)

var (
	accused        = peertest.Accused
	broken         = peertest.Broken
	cancel         = peertest.Cancel
	carryOut       = peertest.CarryOut
	contents       = peertest.Contents
	count          = peertest.Count
	counting       = peertest.Counting
	dead           = peertest.Dead
	enqueue        = peertest.Enqueue
	eventually     = peertest.Eventually
	failWorker     = peertest.FailWorker
	failed         = peertest.Failed
	failedPayloads = peertest.FailedPayloads
	held           = peertest.Held
	hold           = peertest.Hold
	holding        = peertest.Holding
	idle           = peertest.Idle
	ills           = peertest.Ills
	intact         = peertest.Intact
	info           = peertest.Info
	is_            = peertest.Is
	left           = peertest.Left
	listen         = peertest.Listen
	matching       = peertest.Matching
	member         = peertest.Member
	must           = peertest.Must
	near           = peertest.Near
	newGate        = peertest.NewGate
	nothingLeft    = peertest.NothingLeft
	nothingLeftAt  = peertest.NothingLeftAt
	nothingLeftBut = peertest.NothingLeftBut
	numbers        = peertest.Numbers
	open           = peertest.Open
	openAt         = peertest.OpenAt
	openDoctor     = peertest.OpenDoctor
	openQueue      = peertest.OpenQueue
	openQueueAt    = peertest.OpenQueueAt
	openThrough    = peertest.OpenThrough
	panics         = peertest.Panics
	parallel       = redistest.Parallel
	payloads       = peertest.Payloads
	add            = peertest.Add
	receiveClosed  = peertest.ReceiveClosed
	run            = peertest.Run
	scheduled      = peertest.Scheduled
	service        = peertest.Service
	sha            = peertest.Sha
	sorted         = peertest.Sorted
	start          = peertest.Start
	stats          = peertest.Stats
	subscribed     = peertest.Subscribed
	take           = peertest.Take
	tell           = peertest.Tell
	tells          = peertest.Tells
	told           = peertest.Told
	until          = peertest.Until
	verbs          = peertest.Verbs
	wait           = peertest.Wait
	waiting        = peertest.Waiting
	working        = peertest.Working
)

func length[T any](all iter.Seq2[T, error]) (n int, err error) { return peertest.Length(all) }

// named returns a task with a key, which may be "", and a payload.
func named(key, payload string, t worqr.TaskSpec) worqr.TaskSpec {
	t.Key, t.Payload = key, []byte(payload)
	return t
}

func sure[T any](v T, err error) func(testing.TB) T { return redistest.Sure(v, err) }

func failure[T any](v T, err error) error { return peertest.Failure(v, err) }

func each[T any](t testing.TB, all iter.Seq2[T, error]) iter.Seq[T] { return redistest.Each(t, all) }

func receive[T any](t testing.TB, from <-chan T, n int) []T {
	t.Helper()
	return peertest.Receive(t, from, n)
}

// atOnce is a Backoff without a delay.
func atOnce(*worqr.Task, error) time.Duration { return 0 }

func allDone(t testing.TB, q *worqr.Queue) {
	t.Helper()
	peertest.AllDone(t, q)
}
