package store

import (
	"strings"
	"testing"
)

// FuzzMessages checks that any message is read or skipped without a panic, since anyone may publish
// anything.
func FuzzMessages(f *testing.F) {
	f.Add("worqr_{q}_done", []byte(`{"workerId":"w","task":"a","result":"r"}`))
	f.Add("worqr_{q}_done", []byte("{\"workerId\":\"w\",\"task\":\"\xff\\u0000\"}"))
	f.Add("worqr_{q}_work", []byte("-99999999999999999999"))
	f.Add("worqr_{q}_cancel", []byte("a"))
	f.Add("worqr_{q}_cancel", []byte("sha1:86f7e437faa5a7fce15d1ddcb9eaeaea377667b8:1"))
	f.Add("worqr_{q}_delete", []byte{})
	f.Add("worqr_{}_", []byte("3"))
	f.Fuzz(func(t *testing.T, channel string, data []byte) {
		if e, ok := ReadMessage(SpaceOf(""), channel, data); ok && (e.Kind == "" || !strings.Contains(channel, "{"+e.Queue+"}")) {
			t.Errorf("%q is read as %q of %q", channel, e.Kind, e.Queue)
		}
	})
}
