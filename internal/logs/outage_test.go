package logs

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"
)

// An outage of Redis is logged once, whichever caller notices it: after its second consecutive
// failure, again when the error has been different for a while, and at the end.
func TestRedisIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, says := heard(t)
		refused, loading, other, own := errors.New("refused"), errors.New("loading"), errors.New("other"), errors.New("own")
		login := errors.New("login")
		log.Server, log.Away = "here:1", func(err error) bool { return err != other && err != own }
		log.Lost = func(error) {}
		log.Refused = func(err error) bool { log.Called(loading); return err == login } // a method of an error may use the peer
		log.Answered = func(err error) bool { return err == other || err == loading }
		var a, b Outage
		a.Note(log, "a", refused)
		b.Note(log, "b", refused)
		says()
		a.Note(log, "a", nil) // repaired at once
		b.Note(log, "b", nil)
		says()
		a.Note(log, "a", refused)
		b.Note(log, "b", refused)
		time.Sleep(time.Second)
		b.Note(log, "b; as long as Redis answers", refused)
		a.Note(log, "a", loading)
		says(`msg="worqr: Redis doesn't answer; retrying" server=here:1 noticed=b err=refused`)
		time.Sleep(sayAgain)
		a.Note(log, "a", refused)
		a.Note(log, "a", loading)
		says("err=loading")
		a.Note(log, "a", own) // not an answer of Redis
		a.Note(log, "a", refused)
		says(`msg="worqr: a" err=own`)
		a.Note(log, "a", other)
		says(`msg="worqr: Redis answers again" server=here:1 after=11s`, `msg="worqr: a" err=other`)
		b.Note(log, "b", refused) // which was in flight
		b.Note(log, "b", nil)
		a.Note(log, "a", nil)
		says(`msg="worqr: recovered" from=a`)
		a.Note(log, "a", refused)
		a.Note(log, "a", refused)
		says("doesn't answer")
		time.Sleep(forgotten) // there were no calls
		b.Note(log, "b", refused)
		b.Note(log, "b", refused)
		says("doesn't answer")
		time.Sleep(sayAgain)
		b.Note(log, "b", login)
		says(`msg="worqr: Redis refuses the login; check the user and the password; retrying" server=here:1 noticed=b err=login`)
	})
}

// Calls that aren't repeated also detect an outage, after the second consecutive failure, and its
// end. They log nothing.
func TestCalled(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	text := make(textChan, 10)
	log := New(slog.New(slog.NewTextHandler(text, nil)))
	away, other := errors.New("away"), errors.New("other")
	log.Called(away) // no callback is set
	var told []string
	log.Lost = func(err error) { told = append(told, "lost: "+err.Error()) }
	log.Restored = func(time.Duration) { told = append(told, "restored") }
	log.Called(away) // the error can't be classified
	log.Away = func(err error) bool { return err == away }
	log.Answered = func(err error) bool { return err == other }
	says := func(want ...string) {
		t.Helper()
		is.Equal(strings.Join(told, ", "), strings.Join(want, ", "))
		told = nil
	}
	log.Called(away)
	log.Called(nil)
	log.Called(away)
	says()
	log.Called(errors.New("own"))
	log.Called(away)
	log.Called(away)
	says("lost: away")
	log.Called(other)
	log.Called(nil)
	says("restored")
	log.Called(away)
	log.Called(away)
	var worker Outage // its failures belong to the same outage
	worker.Note(log, "beat", away)
	worker.Note(log, "beat", away)
	says("lost: away")
	worker.Note(log, "beat", nil)
	says("restored")
	worker.Note(log, "beat", away)
	worker.Note(log, "beat", away)
	log.Called(nil)
	says("lost: away", "restored")
	log.Flush()
	is.Equal(len(text), 4) // from the worker
}

// Callers that fail in different ways don't alternately log that the error has changed. After a
// minute without an error, it is logged again.
func TestRedisIsAwayInTwoWays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		log, says := heard(t)
		refused, moved := errors.New("refused"), errors.New("moved")
		log.Away, log.Answered = func(error) bool { return true }, func(error) bool { return false }
		var a, b Outage
		for range 120 {
			a.Note(log, "a", refused)
			b.Note(log, "b", moved)
			time.Sleep(time.Second)
		}
		says("err=refused", "err=moved") // one for each error
		for range 60 {
			a.Note(log, "a", refused)
			time.Sleep(time.Second)
		}
		b.Note(log, "b", moved)
		says("err=moved")
		for i := range 1000 { // up to the limit of errors
			a.Note(log, "a", errors.New(strings.Repeat("x", i)))
			time.Sleep(sayAgain)
		}
		is.True(len(log.server.known) <= mostKnown)
	})
}
