package store

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"
)

var (
	documented = regexp.MustCompile(`(?m)^-- (KEYS|ARGV)\[(\d+)\]`)
	used       = regexp.MustCompile(`(KEYS|ARGV)\[(\d+)\]`)
	rest       = regexp.MustCompile(`(?m)^(?:return )?push\(.*, (\d+)\)$|^local at = (\d+)$`)
	comment    = regexp.MustCompile(`(?m)--.*$`)
)

// The header of each verb, with that of lib_queue if it uses that, documents
// the keys and arguments that the script uses, no more and no less, in order.
func TestHeaders(t *testing.T) {
	t.Parallel()
	entries, err := files.ReadDir(".")
	is.New(t).NoErr(err)
	verbs := 0
	for _, entry := range entries {
		verb, _ := strings.CutSuffix(entry.Name(), ".lua")
		if strings.HasPrefix(verb, "lib_") {
			continue
		}
		verbs++
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			src := source(verb)
			var said []string
			for _, m := range documented.FindAllStringSubmatch(src, -1) {
				said = append(said, m[1]+m[2])
			}
			body := comment.ReplaceAllString(src, "")
			does := map[string]bool{}
			for _, m := range used.FindAllStringSubmatch(body, -1) {
				does[m[1]+m[2]] = true
			}
			for _, m := range rest.FindAllStringSubmatch(body, -1) {
				does["ARGV"+m[1]+m[2]] = true // from there to the end
			}
			is.True(len(said) > 0)
			is.Equal(slices.Sorted(slices.Values(said)), slices.Sorted(maps.Keys(does)))
			n := map[string]int{}
			for _, s := range said { // numbered without a gap, each once
				n[s[:4]]++
				is.Equal(s, fmt.Sprint(s[:4], n[s[:4]]))
			}
		})
	}
	is.New(t).Equal(verbs, 27)
}

// StepFixed is where the lists begin in step.
func TestStepFixed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	at := regexp.MustCompile(`(?m)^local at = (\d+)$`).FindStringSubmatch(source("step"))
	is.Equal(at[1], fmt.Sprint(StepFixed+1))
}
