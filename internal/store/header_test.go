package store

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redistest"
)

var (
	documented = regexp.MustCompile(`(?m)^-- (KEYS|ARGV)\[(\d+)\] +(\w+)(.*)$`)
	used       = regexp.MustCompile(`(KEYS|ARGV)\[(\d+)\]`)
	rest       = regexp.MustCompile(`(?m)^(?:return )?push\(.*, (\d+)\)$|^local at = (\d+)$`)
	comment    = regexp.MustCompile(`(?m)--.*$`)
	refuses    = regexp.MustCompile(`error_reply\('(\w+)`)
)

// Each script has a row in the table, and each row a script.
func TestVerbs(t *testing.T) {
	t.Parallel()
	entries, err := files.ReadDir(".")
	is.New(t).NoErr(err)
	var scripts, rows []string
	for _, e := range entries {
		if verb, _ := strings.CutSuffix(e.Name(), ".lua"); !strings.HasPrefix(verb, "lib_") {
			scripts = append(scripts, verb)
		}
	}
	for _, v := range Verbs() {
		rows = append(rows, v.Name)
		if v.Does == "" || v.By == "" {
			t.Errorf("%s: what does it do, and for whom?", v.Name)
		}
	}
	slices.Sort(rows)
	is.New(t).Equal(rows, scripts)
}

// The header of each verb, together with that of lib_queue if it uses it, documents exactly the keys
// and arguments that the script uses and the table has, in order and with the same names. The table
// also has its reply and its refusals.
func TestHeaders(t *testing.T) {
	t.Parallel()
	for _, v := range Verbs() {
		t.Run(v.Name, func(t *testing.T) {
			is := redistest.Parallel(t)
			src := source(v.Name)
			said, named := map[string]bool{}, map[string][]string{}
			for _, m := range documented.FindAllStringSubmatch(src, -1) {
				said[m[1]+m[2]] = true
				named[m[1]] = append(named[m[1]], m[3])
				is.Equal(m[2], fmt.Sprint(len(named[m[1]]))) // numbered without gaps, each once
				if row := keys.Named(m[3]); m[1] == "KEYS" && row != nil && !strings.HasPrefix(strings.TrimSpace(m[4]), string(row.Type)) {
					t.Errorf("%s is a %s", m[3], row.Type)
				}
			}
			is.True(slices.Equal(named["KEYS"], v.keys))
			is.True(slices.Equal(named["ARGV"], v.args))
			body := comment.ReplaceAllString(src, "")
			does := map[string]bool{}
			for _, m := range used.FindAllStringSubmatch(body, -1) {
				does[m[1]+m[2]] = true
			}
			repeats := "" // the first repeated argument
			for _, m := range rest.FindAllStringSubmatch(body, -1) {
				repeats = m[1] + m[2]
				does["ARGV"+repeats] = true
			}
			is.Equal(slices.Sorted(maps.Keys(said)), slices.Sorted(maps.Keys(does)))
			if v.fixed < len(v.args) {
				is.Equal(repeats, strconv.Itoa(len(v.args)))
			}
			words := map[string]bool{}
			own := sure(files.ReadFile(v.Name + ".lua"))(t)
			for _, m := range refuses.FindAllStringSubmatch(string(own), -1) {
				words[m[1]] = true
			}
			delete(words, "WRONGTYPE") // Redis's own
			is.Equal(slices.Sorted(maps.Keys(words)), sorted(v.Fails))
			if reply := strings.Join(v.reply, ", "); len(v.reply) > 1 && !strings.Contains(flat(string(own)), "{"+reply+"}") {
				t.Errorf("the header doesn't say that it returns {%s}", reply)
			}
		})
	}
}

// flat returns the text of comments without line breaks.
func flat(lua string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(lua, "\n--", " ")), " ")
}

func sorted(words string) []string { return slices.Sorted(slices.Values(strings.Fields(words))) }

// protocol is the document that has the tables of verbs and keys.
const protocol = "../../docs/protocol.md"
