package program

import (
	"os"
	"runtime"
	"slices"
	"strings"
)

// passed are the variables that every program gets, by name. Windows does without
// some of them, and cannot do without others.
var passed = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "LANGUAGE",
	"SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "TEMP", "TMP", "USERPROFILE", "APPDATA", "LOCALAPPDATA",
}

// passes reports whether a variable is passed on to every program.
func passes(name string) bool {
	if runtime.GOOS == "windows" {
		name = strings.ToUpper(name) // names have no case there
	}
	return slices.Contains(passed, name) || strings.HasPrefix(name, "LC_")
}

// Environment is what a program may know of ours: where programs and files are, who runs
// them and in which language, and what is named in more, as NAME or NAME=value. The
// variables of set replace all others of their names; one whose value contains a NUL byte
// is missing.
func Environment(more []string, set [][2]string) []string {
	var env []string
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); passes(name) {
			env = append(env, e)
		}
	}
	for _, e := range more {
		if strings.Contains(e, "=") {
			env = append(env, e) // of two, the last holds
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
