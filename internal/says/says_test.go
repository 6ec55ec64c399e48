package says

import (
	"regexp"
	"strings"
	"testing"

	"github.com/matryer/is"
)

func TestText(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	k := Of("no-worker")
	is.Equal(k.Text(1, false, ""), "1 task is waiting, and no worker serves this queue. Start the service that handles it.")
	is.Equal(k.Text(4500, true, "On orders: so it is."), "4,500 tasks are waiting, and no worker serves these queues. On orders: so it is. Start the service that handles them.")
	is.Equal(k.Text(0, false, ""), "No worker of this queue is alive. Start the service that handles it.")
	is.Equal(Of("retrying").Text(1, true, ""), "1 task is waiting for a retry. It retries by itself; fix what makes it fail.")
	is.True(Of("outbox") == nil && !Of("outbox").Folds() && Rank("outbox") == len(All))
}

// Each kind has a title, and sentences in which nothing is left of the template.
func TestKinds(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, k := range All {
		if seen[k.Name] || k.Title == "" || strings.HasSuffix(k.Title, ".") {
			t.Errorf("%+v", k)
		}
		seen[k.Name] = true
		for _, several := range []bool{false, true} {
			for n := range 3 {
				text := k.Text(n, several, "")
				if k.Folds() && !strings.HasSuffix(text, ".") || regexp.MustCompile(`[][{}<>|]`).MatchString(text) {
					t.Errorf("%s: %s", k.Name, text)
				}
			}
		}
	}
}
