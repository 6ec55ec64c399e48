package scripts_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/worqr/worqr/internal/store"
)

// luacheckEnv names the environment variable that, set to 1, makes the test fail if luacheck is missing. .ci/run sets it.
const luacheckEnv = "WORQR_TEST_LUACHECK"

// In the file of the test: luacheck finds globals, unused and overwritten values in the scripts as Redis runs them, with
// their fragments. What a fragment defines must be used in one of them.
func TestLuacheck(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("luacheck"); err != nil {
		if os.Getenv(luacheckEnv) == "1" {
			t.Fatal(err, "; install lua-check")
		}
		t.Skip("needs luacheck")
	}
	dir := t.TempDir()
	sources, in := map[string][]string{}, map[string]int{} // in: how many scripts have a line
	for _, v := range store.Verbs() {
		text := v.Source()
		if err := os.WriteFile(filepath.Join(dir, v.Name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		sources[v.Name] = strings.Split(text, "\n")
		for _, line := range sources[v.Name] {
			in[line]++
		}
	}
	// Names that begin with 4 shadow others: in a script, they're far apart.
	c := exec.Command("luacheck", ".", "--no-config", "--include-files", "*", "--std", "min", "--read-globals", "redis", "cjson", "cmsgpack", "bit", "struct", "unpack", "KEYS", "ARGV",
		"--ignore", "4", "--codes", "--no-color", "--no-max-line-length", "--formatter", "plain")
	c.Dir = dir
	out, _ := c.CombinedOutput() // it fails if it warns
	warnings := regexp.MustCompile(`(?m)^(?:\./)?(\w+):(\d+):\d+: \((\w\d+)\) (.*)$`).FindAllSubmatch(out, -1)
	unused := map[string]int{}
	for _, w := range warnings {
		n, err := strconv.Atoi(string(w[2]))
		if err != nil {
			t.Fatal(err)
		}
		line := sources[string(w[1])][n-1]
		if code := string(w[3]); code == "W211" || code == "W241" {
			if unused[line+string(w[4])]++; unused[line+string(w[4])] < in[line] {
				continue // another script may use it
			}
		}
		t.Errorf("%s: %s: %s", w[1], w[4], line)
	}
	if len(warnings) == 0 {
		t.Errorf("luacheck said:\n%s", out)
	}
}
