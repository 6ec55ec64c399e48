package worqr_test

import (
	"iter"
	"testing"

	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

// What the tests of the root and of integration/api share.
const (
	canary   = peertest.Canary
	far      = peertest.Far
	patience = peertest.Patience
)

type (
	journal = peertest.Journal
	said    = peertest.Said
	tamper  = peertest.Tamper
)

var (
	broken         = peertest.Broken
	cancel         = peertest.Cancel
	contents       = peertest.Contents
	counting       = peertest.Counting
	enqueue        = peertest.Enqueue
	eventually     = peertest.Eventually
	failWorker     = peertest.FailWorker
	failed         = peertest.Failed
	failedPayloads = peertest.FailedPayloads
	held           = peertest.Held
	hold           = peertest.Hold
	idle           = peertest.Idle
	ills           = peertest.Ills
	is_            = peertest.Is
	left           = peertest.Left
	matching       = peertest.Matching
	matchingAny    = peertest.MatchingAny
	member         = peertest.Member
	must           = peertest.Must
	near           = peertest.Near
	newGate        = peertest.NewGate
	noTask         = peertest.NoTask
	nothingLeft    = peertest.NothingLeft
	nothingLeftBut = peertest.NothingLeftBut
	numbers        = peertest.Numbers
	open           = peertest.Open
	openAt         = peertest.OpenAt
	openDoctor     = peertest.OpenDoctor
	openQueue      = peertest.OpenQueue
	openQueueAt    = peertest.OpenQueueAt
	panics         = peertest.Panics
	parallel       = redistest.Parallel
	payloads       = peertest.Payloads
	put            = peertest.Put
	receiveClosed  = peertest.ReceiveClosed
	run            = peertest.Run
	scheduled      = peertest.Scheduled
	sha            = peertest.Sha
	stats          = peertest.Stats
	take           = peertest.Take
	tell           = peertest.Tell
	tells          = peertest.Tells
	told           = peertest.Told
	verbs          = peertest.Verbs
	wait           = peertest.Wait
	waiting        = peertest.Waiting
	working        = peertest.Working
)

func sure[T any](v T, err error) func(testing.TB) T { return redistest.Sure(v, err) }

func each[T any](t testing.TB, all iter.Seq2[T, error]) iter.Seq[T] { return redistest.Each(t, all) }

func receive[T any](t testing.TB, from <-chan T, n int) []T {
	t.Helper()
	return peertest.Receive(t, from, n)
}
