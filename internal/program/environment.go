package program

import (
	"os"
	"runtime"
	"slices"
	"strings"
)

// passed are the variables that every program gets, by name. Windows lacks some of them, and needs
// others.
var passed = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "LANGUAGE",
	"SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "TEMP", "TMP", "USERPROFILE", "APPDATA", "LOCALAPPDATA",
}

// passes reports whether a variable is passed on to every program.
func passes(name string) bool {
	if runtime.GOOS == "windows" {
		name = strings.ToUpper(name) // names are case-insensitive there
	}
	return slices.Contains(passed, name) || strings.HasPrefix(name, "LC_")
}

// Environment returns the environment for a program: where programs and files are, the user and
// language, and what more lists, as NAME or NAME=value. The variables in set replace all others
// with their names; those whose values contain a NUL byte are left out.
func Environment(more []string, set [][2]string) []string {
	var env []string
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); passes(name) {
			env = append(env, e)
		}
	}
	for _, e := range more {
		if strings.Contains(e, "=") {
			env = append(env, e) // the last one of a name wins
		} else if value, ok := os.LookupEnv(e); ok {
			env = append(env, e+"="+value)
		}
	}
	for _, v := range set {
		name, value := v[0], v[1]
		env = slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, name+"=") })
		if !strings.Contains(value, "\x00") {
			env = append(env, name+"="+value)
		}
	}
	return env
}
