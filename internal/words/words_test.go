package words_test

import (
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/words"
)

func TestWords(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for in, out := range map[string]string{
		"plain": "plain", "": "", "ä b": "ä b", `a"b`: `"a\"b"`, "a\x1b[2J": `"a\x1b[2J"`, "a\nb": `"a\nb"`, "\xff": `"\xff"`,
		strings.Repeat("x", 101): strings.Repeat("x", 100) + "…",
	} {
		is.Equal(words.Shown(in), out)
	}
	is.Equal(words.Clip(strings.Repeat("x", 100)), strings.Repeat("x", 100))
	is.Equal([]string{words.Counted(0, "key"), words.Counted(1, "key"), words.Counted(2, "key")}, []string{"0 keys", "1 key", "2 keys"})
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 700_000: "700,000", 1234567: "1,234,567", -1234: "-1,234", -123: "-123"} {
		is.Equal(words.Grouped(n), want)
	}
	is.Equal([]string{words.Counted(1, "task"), words.Counted(2000, "task")}, []string{"1 task", "2,000 tasks"})
	is.Equal([]string{words.Tasks(1, "is", "are"), words.Tasks(2, "is", "are")}, []string{"1 task is", "2 tasks are"})
	is.Equal(words.Clock(time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.FixedZone("", 3600))), "2026-01-02 02:04:05.006 UTC")
}
