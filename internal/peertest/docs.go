package peertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/worqr/worqr/internal/redistest"
)

// MatchingAny returns the files that match any of the patterns.
func MatchingAny(patterns ...string) (files []string) {
	for _, pattern := range patterns {
		some, err := filepath.Glob(pattern)
		if err != nil {
			panic(err) // the pattern is malformed
		}
		files = append(files, some...)
	}
	return files
}

func Contents(t testing.TB, files ...string) string {
	t.Helper()
	var all strings.Builder
	for _, f := range files {
		b := redistest.Sure(os.ReadFile(f))(t)
		all.Write(b)
	}
	return all.String()
}

func Matching(t testing.TB, pattern string) []string {
	t.Helper()
	files := MatchingAny(pattern)
	if len(files) == 0 {
		t.Fatalf("nothing matches %s", pattern)
	}
	return files
}
