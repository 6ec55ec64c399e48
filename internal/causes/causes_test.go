package causes

import (
	"strings"
	"testing"

	"github.com/matryer/is"
)

// Ids of any shape, and amounts of any unit, don't separate errors. Words with a digit do.
func TestOfIDs(t *testing.T) {
	t.Parallel()
	for _, shape := range []string{
		"request req_%s failed", "request req-%s failed", "request %s failed", "request #%s failed", "request id=%s, failed", "request:%s failed", "GET /v1/%s: failed", "(%s)", "x_%s",
	} {
		first := ""
		for _, id := range []string{
			"1a2b3c", "ff00a9", "4711", "01a20b67-82ed-78c2-9035-2564aa196338", "DEADBEEF-82ED-78C2-9035-2564AA196338",
			"01ARZ3NDEKTSV4RRFFQ69G5FAV", "cn1k2v3p4q", "NffrFeUfNV2Hib", "V1StGXR8_Z5jdHi6B-myT", "7d9f8b6c5-xkqvw", "9f86d081884c7d659a2feaa0c55ad015",
		} {
			is := Of(strings.Replace(shape, "%s", id, 1))
			if first == "" {
				first = is
			}
			if is != first {
				t.Errorf("%q with %s: %q, not %q", shape, id, is, first)
			}
		}
	}
	for _, amounts := range [][]string{
		{"took 17ms", "took 1.5s", "took 1m30s", "took 2h0m0s", "took 250µs"}, {"read 12MB", "read 4KiB", "read 1.2GB", "read 7"},
		{"at 2026-11-23T12:00:00Z", "at 2025-01-02T03:04:05.678+02:00"}, {"got 1e+09", "got 12"}, {"customer cus_NffrFeUfNVxHib", "customer cus_9s6XKzkNRiz8i3"},
		{"no file `a`", "no file `b`"},
	} {
		for _, one := range amounts {
			if Of(one) != Of(amounts[0]) {
				t.Errorf("%q: %q, not %q", one, Of(one), Of(amounts[0]))
			}
		}
	}
	differ := []string{
		"sha256 mismatch", "md5 mismatch", "worker12 is gone", "node12 is gone", "invalid utf8 here", "invalid base64 here", "task_12_failed", "task_12_expired",
		"java.lang.NullPointerException: x", "java.lang.IllegalStateException: x", "rpc_InvalidArgument", "rpc_DeadlineExceeded", "k8s denied", "p2p denied", "can't read, won't retry", "can't write, won't retry",
	}
	for i, one := range differ {
		for _, other := range differ[:i] {
			if Of(one) == Of(other) {
				t.Errorf("%q and %q: %q", one, other, Of(one))
			}
		}
	}
}

func TestOf(t *testing.T) {
	is := is.New(t)
	for want, errs := range map[string][]string{
		"timeout after … ms":         {"timeout after 17 ms", "timeout after 1234 ms"},
		"no such mailbox: …":         {"no such mailbox: 1", "no such mailbox: 199999"},
		"user … is gone":             {"user 01a20b67-82ed-78c2-9035-2564aa196338 is gone", "user 01A20B67-8666-7a5d-bf87-6ba176caeada is gone"},
		"template “…” not found":     {`template "a" not found`, `template 'other' not found`},
		"dial tcp …: refused":        {"dial tcp 10.0.3.89:443: refused", "dial tcp 10.1.3.9:8443: refused"},
		"panic: x":                   {"panic: x\nstack 1", "panic: x\nstack 2"},
		"disk full":                  {"disk full"},
		"":                           {""},
		strings.Repeat("x", longest): {strings.Repeat("x", longest+1)},
	} {
		for _, err := range errs {
			is.Equal(Of(err), want)
		}
	}
}
