package dash

import (
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
)

func TestFormat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for f, want := range map[float64]string{0: "0", 0.04: "0", 0.34: "0.3", 5: "5", 9.96: "10", 42.4: "42", 99.7: "100", 1234.5: "1,235", 12345: "12.3 k", 2e6: "2 M"} {
		is.Equal(amount(f), want)
	}
	for d, want := range map[time.Duration]string{
		-time.Second: "0 s", 0: "0 ms", 340 * time.Microsecond: "340 µs", 3 * time.Second: "3 s", 850 * time.Millisecond: "850 ms", 1500 * time.Millisecond: "1.5 s", 42 * time.Second: "42 s", time.Minute: "1 min",
		200 * time.Second: "3 min 20 s", 50*time.Minute + 20*time.Second: "50 min", 5*time.Hour + 12*time.Minute: "5 h 12 min", 76 * time.Hour: "3 d 4 h",
	} {
		is.Equal(span(d), want)
	}
	is.Equal(size(1), "1 byte")
	is.Equal(size(9999), "9,999 bytes")
	is.Equal(size(1<<20), "1,024 KiB")
	is.Equal(line("a\n b\tc", 9), "a b c")
	is.Equal(line("abcdef", 4), "abc…")
	is.Equal(line(strings.Repeat("😀", 9), 4), "😀😀😀…")
	is.Equal(line(" a"+strings.Repeat(" ", 100)+"b", 4), "a…")
	is.Equal(line(" \n", 4), "(blank)") // it may be the text of a link
	is.Equal(line(strings.Repeat(" ", 100)+"b", 4), "(blank)…")
	is.Equal(line("", 4), "")
	is.Equal(printable("a\x00b\u202ec\xffd\n"), "a�b�c�d\n")
	is.Equal(link("queue", "name", "a b&c", "tab", ""), "queue?name=a+b%26c")
	is.Equal(link(""), "./")
}
