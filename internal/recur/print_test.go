package recur

import (
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"
)

// within is a schedule that recurs every five minutes during some hours of the day, as cron allows.
type within struct{ first, last int }

func (w within) Next(t time.Time) time.Time {
	for t = t.Truncate(5 * time.Minute).Add(5 * time.Minute); t.UTC().Hour() < w.first || t.UTC().Hour() > w.last; {
		t = t.Add(5 * time.Minute)
	}
	return t
}

// locked is a schedule whose value mustn't be read.
type locked struct{ sync.Mutex }

func (*locked) Next(t time.Time) time.Time { return every(time.Hour).Next(t) }

// unless is a schedule that leaves out some times. Its variables can't be read.
func unless(s Schedule, not func(t time.Time) bool) Schedule {
	return next(func(t time.Time) time.Time {
		for t = s.Next(t); not(t); {
			t = s.Next(t)
		}
		return t
	})
}

// Prints are equal for equal specs, and only for those.
func TestPrint(t *testing.T) {
	t.Parallel()
	minutely := every(time.Minute)
	daily := nightly{3, 0, time.UTC}
	specs := map[string]Spec{
		"hours": {Schedule: every(time.Hour)}, "days": {Schedule: every(24 * time.Hour)}, "seconds": {Schedule: every(time.Second)},
		"payload": {Schedule: every(time.Hour), Payload: []byte("a")}, "late": {Schedule: every(time.Hour), Late: time.Second},
		"card": {Schedule: every(time.Hour), Card: []byte("a")}, "both": {Schedule: every(time.Hour), Card: []byte("a"), Payload: []byte("b")}, "card of two": {Schedule: every(time.Hour), Card: []byte("ab")},
		"Berlin": {Schedule: nightly{3, 0, zone(t, "Europe/Berlin")}}, "New York": {Schedule: nightly{21, 0, zone(t, "America/New_York")}},
		"Paris": {Schedule: nightly{3, 0, zone(t, "Europe/Paris")}}, "Paris, half": {Schedule: nightly{3, 30, zone(t, "Europe/Paris")}}, "Lagos": {Schedule: nightly{3, 0, zone(t, "Africa/Lagos")}},
		"never":                  {Schedule: next(func(time.Time) time.Time { return time.Time{} })},
		"9 to 17":                {Schedule: within{9, 17}},
		"9 to 18":                {Schedule: within{9, 18}},
		"minutes":                {Schedule: minutely},
		"not 3:17":               {Schedule: unless(minutely, func(t time.Time) bool { return t.Hour() == 3 && t.Minute() == 17 })},
		"not 3":                  {Schedule: unless(minutely, func(t time.Time) bool { return t.Hour() == 3 })},
		"not 3, 4":               {Schedule: unless(minutely, func(t time.Time) bool { return t.Hour() == 3 || t.Hour() == 4 })},
		"not :17":                {Schedule: unless(every(time.Second), func(t time.Time) bool { return t.Second() == 17 })},
		"at 3":                   {Schedule: next(daily.Next)},
		"at 3, not on leap days": {Schedule: unless(daily, func(t time.Time) bool { return t.Month() == time.February && t.Day() == 29 })},
		"at 3, not on Christmas": {Schedule: unless(daily, func(t time.Time) bool { return t.YearDay() == 359 })},
	}
	seen := map[string]string{}
	for name, s := range specs {
		if other, twice := seen[s.Print()]; twice {
			t.Errorf("%s is %s", name, other)
		}
		seen[s.Print()] = name
	}
	is := is.New(t)
	equal := func(a, b Spec) {
		t.Helper()
		is.Helper()
		is.Equal(a.Print(), b.Print())
	}
	equal(Spec{Schedule: every(time.Hour)}, Spec{Schedule: every(time.Hour), Payload: []byte{}})
	equal(Spec{Schedule: &within{9, 17}}, Spec{Schedule: &within{9, 17}})
	equal(Spec{Schedule: nightly{3, 0, time.UTC}}, Spec{Schedule: nightly{3, 0, zone(t, "UTC")}})
	equal(Spec{Schedule: &locked{}}, Spec{Schedule: every(time.Hour)}) // it's compared only by its times
	broken := Spec{Schedule: next(func(t time.Time) time.Time { return t })}
	equal(broken, broken)
}

// A print asks for only a few times if they are far apart.
func TestPrintAsksLittle(t *testing.T) {
	t.Parallel()
	for each, most := range map[time.Duration]int{365 * 24 * time.Hour: 20, 24 * time.Hour: 3000, time.Second: 5000} {
		asked := 0
		s := Spec{Schedule: next(func(t time.Time) time.Time {
			asked++
			return t.Truncate(each).Add(each)
		})}
		s.Print()
		if asked > most {
			t.Errorf("every %v: asked %d times", each, asked)
		}
	}
}
