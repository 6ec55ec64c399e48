// Command release prepares a version of all modules, and checks it. RELEASING.md says when to run what:
//
//	release prepare v0.3.0   write the version into the work tree, and print what to tag
//	release proxy DIR        add the version in HEAD to the module proxy in a folder
//	release api [FOLDER]     compare the exported API of all modules, or one, with the last version's
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/zip"
)

const (
	library = "github.com/worqr/worqr"
	command = "cmd/worqr"
	apidiff = "golang.org/x/exp/cmd/apidiff@v0.0.0-20261113113407-e3970619a1a4"
)

// published lists the folders of the modules that others require. All have the same version.
var published = []string{"", "worqrtest", "contrib/otel", "contrib/outbox", "contrib/prometheus", command}

var (
	versionInGo = regexp.MustCompile(`(?m)^const Version = "(.*)"$`)
	sections    = regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+)( - (unreleased|\d{4}-\d\d-\d\d))?$`)
)

func main() {
	root, err := output("", "git", "rev-parse", "--show-toplevel")
	args := append(os.Args[1:], "", "")
	switch {
	case err != nil:
	case args[0] == "prepare" && args[1] != "":
		err = prepare(root, args[1])
	case args[0] == "proxy" && args[1] != "":
		err = proxy(root, args[1])
	case args[0] == "api":
		err = api(root, args[1])
	default:
		err = errors.New("usage: release prepare VERSION | proxy DIR | api [FOLDER]")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// prepare writes a version into the work tree.
func prepare(root, version string) error {
	number := strings.TrimPrefix(version, "v")
	if semver.Canonical(version) != version {
		return fmt.Errorf("%q isn't a version such as v0.3.0", version)
	}
	if tagged, err := output(root, "git", "tag", "--list", version); err != nil || tagged != "" {
		return errors.Join(err, fmt.Errorf("the tag %s exists; choose a higher version", version))
	}
	// Both are checked before anything is written.
	changes, log, err := sectionOf(root, number)
	if err != nil {
		return err
	}
	if strings.TrimSpace(changes) == "" {
		return fmt.Errorf("the section %s of CHANGELOG.md is empty; say what users will notice", number)
	}
	listed, err := output(root, "git", "ls-files", "go.mod", "*/go.mod")
	if err != nil {
		return err
	}
	texts := map[string][]byte{}
	for name := range strings.FieldsSeq(listed) {
		if texts[name], err = requiring(filepath.Join(root, name), version); err != nil {
			return err
		}
	}

	today := "## " + number + " - " + time.Now().UTC().Format(time.DateOnly)
	texts["CHANGELOG.md"] = []byte(strings.Replace(log, "## "+number+" - unreleased", today, 1))
	code, err := os.ReadFile(filepath.Join(root, "worqr.go"))
	if err != nil {
		return err
	}
	texts["worqr.go"] = versionInGo.ReplaceAll(code, fmt.Appendf(nil, "const Version = %q", number))
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(root, name), text, 0o644); err != nil {
			return err
		}
	}
	var tags []string
	for _, dir := range published {
		tags = append(tags, path.Join(dir, version))
	}
	fmt.Printf("%s is prepared. Commit it, and once CI has passed, tag that commit:\n\n\tgit commit -am \"Release %s\"\n\tfor tag in %s; do git tag $tag; done\n\tgit push --atomic origin HEAD %[3]s\n",
		version, version, strings.Join(tags, " "))
	return nil
}

// sectionOf returns the section of the changelog about a version, and the whole changelog.
func sectionOf(root, number string) (section, log string, err error) {
	text, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	all := sections.FindAllSubmatchIndex(text, -1)
	for i, at := range all {
		end := len(text)
		if i+1 < len(all) {
			end = all[i+1][0]
		}
		if string(text[at[2]:at[3]]) == number {
			return string(text[at[1]:end]), string(text), nil
		}
	}
	return "", "", errors.Join(err, fmt.Errorf("CHANGELOG.md has no section %q; write one", "## "+number+" - unreleased"))
}

// requiring returns a go.mod that requires a version of this repository's modules.
func requiring(name, version string) ([]byte, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	f, err := modfile.Parse(name, text, nil)
	if err != nil {
		return nil, err
	}
	for _, r := range f.Require {
		if ours(r.Mod.Path) {
			if err := f.AddRequire(r.Mod.Path, version); err != nil {
				return nil, err
			}
		}
	}
	return f.Format()
}

func ours(module string) bool { return module == library || strings.HasPrefix(module, library+"/") }

// proxy adds the modules in HEAD to the module proxy in a folder, for GOPROXY=file://DIR.
func proxy(root, dir string) error {
	code, err := output(root, "git", "show", "HEAD:worqr.go")
	if err != nil {
		return err
	}
	found := versionInGo.FindStringSubmatch(code)
	if found == nil {
		return errors.New("worqr.go has no constant Version")
	}
	version := "v" + found[1]
	at, err := output(root, "git", "show", "--no-patch", "--format=%cI", "HEAD")
	if err != nil {
		return err
	}
	for _, sub := range published {
		mod, err := output(root, "git", "show", "HEAD:"+path.Join(sub, "go.mod"))
		if err != nil {
			return err
		}
		f, err := modfile.Parse(path.Join(sub, "go.mod"), []byte(mod), nil)
		if err != nil {
			return err
		}
		for _, r := range f.Require {
			if ours(r.Mod.Path) && r.Mod.Version != version {
				return fmt.Errorf("%s/go.mod requires %s, but worqr.go is %s; run: release prepare %s", sub, r.Mod, version, version)
			}
		}
		if len(f.Replace) > 0 {
			return fmt.Errorf("%s/go.mod has a replace, which doesn't apply to those who require it; delete it", sub)
		}
		if err := add(dir, module.Version{Path: path.Join(library, sub), Version: version}, mod, at, func(w *bytes.Buffer, m module.Version) error {
			return zip.CreateFromVCS(w, m, root, "HEAD", sub)
		}); err != nil {
			return err
		}
	}
	fmt.Println(version, "of", len(published), "modules is in", dir)
	return nil
}

// add writes a version of a module as "go help goproxy" describes.
func add(dir string, m module.Version, mod, at string, pack func(*bytes.Buffer, module.Version) error) error {
	var packed bytes.Buffer
	if err := pack(&packed, m); err != nil {
		return fmt.Errorf("%s: %w", m, err)
	}
	info, err := json.Marshal(map[string]string{"Version": m.Version, "Time": at})
	if err != nil {
		return err
	}
	dir = filepath.Join(dir, filepath.FromSlash(m.Path), "@v") // the paths have no capitals to escape
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	list, err := os.ReadFile(filepath.Join(dir, "list"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if line := m.Version + "\n"; !strings.Contains("\n"+string(list), "\n"+line) {
		list = append(list, line...)
	}
	for name, text := range map[string][]byte{"list": list, m.Version + ".info": info, m.Version + ".mod": []byte(mod + "\n"), m.Version + ".zip": packed.Bytes()} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// api compares the exported API of the work tree with that of the last tagged version. It fails if a patch release would
// break programs.
func api(root, only string) error {
	log, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	top := sections.FindSubmatch(log)
	if top == nil {
		return errors.New(`CHANGELOG.md has no section such as "## 0.3.0 - unreleased"`)
	}
	next := "v" + string(top[1])
	tags, err := output(root, "git", "tag", "--list", "v*", "--merged", "HEAD")
	if err != nil {
		return err
	}
	last := ""
	for tag := range strings.FieldsSeq(tags) {
		if semver.IsValid(tag) && semver.Compare(tag, last) > 0 {
			last = tag
		}
	}
	if last == "" {
		fmt.Printf("API: no version has been tagged yet, so there's nothing to compare %s with\n", next)
		return nil
	}

	dir, err := os.MkdirTemp("", "api")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	before := filepath.Join(dir, "before")
	if _, err := output(root, "git", "clone", "--quiet", "--no-checkout", root, before); err != nil {
		return err
	}
	if _, err := output(before, "git", "checkout", "--quiet", "--detach", last); err != nil {
		return err
	}
	if _, err := output(root, "env", "GOBIN="+dir, "go", "install", apidiff); err != nil {
		return err
	}
	diff := filepath.Join(dir, "apidiff")
	var broken []string
	for _, sub := range published {
		if sub == command || only != "" && sub != only {
			continue
		}
		files := [2]string{filepath.Join(dir, "old"), filepath.Join(dir, "new")}
		for i, tree := range [2]string{before, root} {
			work := "GOWORK=" + filepath.Join(tree, "go.work")
			if sub == "" {
				work = "GOWORK=off" // otherwise all modules match
			}
			if _, err := output(filepath.Join(tree, sub), "env", work, diff, "-m", "-w", files[i], path.Join(library, sub)); err != nil {
				return err
			}
		}
		changes, err := output(root, diff, "-m", files[0], files[1])
		if err != nil {
			return err
		}
		if changes != "" {
			fmt.Printf("%s, from %s to %s:\n%s\n", path.Join(library, sub), last, next, changes)
		}
		if strings.Contains(changes, "Incompatible changes:") {
			broken = append(broken, path.Join(library, sub))
		}
	}
	fmt.Printf("API: compared %s with %s; incompatible modules: %d\n", next, last, len(broken))
	return allow(last, next, broken)
}

// allow fails if a version after the last one may not break the users of modules.
func allow(last, next string, broken []string) error {
	if len(broken) > 0 && (semver.MajorMinor(next) == semver.MajorMinor(last) || semver.Major(next) == semver.Major(last) && semver.Major(next) != "v0") {
		return fmt.Errorf("%s breaks programs that use %s and %s; undo that, or call it a higher version in CHANGELOG.md",
			next, last, strings.Join(broken, " and "))
	}
	return nil
}

// output runs a program in a folder and returns what it prints.
func output(dir, name string, args ...string) (string, error) {
	c := exec.Command(name, args...)
	c.Dir = dir
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, errs.String())
	}
	return strings.TrimSuffix(string(out), "\n"), err
}
