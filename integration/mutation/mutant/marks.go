package mutant

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Scripts are the files of Lua, their mutants, and their marks.
type Scripts struct {
	Files   map[string]string // without .lua
	Mutants []Mutant
	// Guards are the named rules of the protocol, each on its line,
	//
	//	if not redis.call('ZSCORE', q.workers, worker) then --! guard step-members false
	//
	// with the class of the mutant that removes it; nil if no single change does.
	Guards map[string]*Mutant
	Wrong  []string // marks that match nothing
}

// Read reads the scripts of the repository at root.
func Read(root string) (*Scripts, error) {
	s := &Scripts{Files: map[string]string{}, Guards: map[string]*Mutant{}}
	paths, err := filepath.Glob(filepath.Join(root, "internal", "store", "*.lua"))
	for _, path := range paths {
		if filepath.Base(path) == "lib_tell.lua" {
			continue // only part of the scripts for a cluster, which the tests of mutants don't run
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if err := s.add(strings.TrimSuffix(filepath.Base(path), ".lua"), string(src)); err != nil {
			return nil, err
		}
	}
	return s, err
}

// add adds a file: its mutants, with its marks applied.
func (s *Scripts) add(file, src string) error {
	mutants, err := breed(file, src)
	if err != nil {
		return err
	}
	s.Files[file] = src
	said := marks(src)
	mutants = slices.DeleteFunc(mutants, func(m Mutant) bool {
		return m.Class == sum && !slices.ContainsFunc(said, func(k mark) bool { return k.line == m.Line && k.class == sum })
	})
	for _, m := range said {
		if err := s.heed(m, mutants); err != "" {
			s.Wrong = append(s.Wrong, fmt.Sprintf("%s:%d: %s: %s", file, m.line, m.text, err))
		}
	}
	s.Mutants = append(s.Mutants, mutants...)
	return nil
}

// heed applies a mark, and returns what is wrong with it.
func (s *Scripts) heed(m mark, mutants []Mutant) (wrong string) {
	found := m.of(mutants)
	if m.guard != "" {
		if _, twice := s.Guards[m.guard]; twice {
			return "there is another guard of this name"
		}
		s.Guards[m.guard] = nil
		switch {
		case len(found) == 1:
			s.Guards[m.guard] = found[0]
		case len(found) > 1:
			return "there are several such mutants"
		}
	}
	if len(found) == 0 && m.class != "" {
		return "there is no such mutant"
	}
	if m.guard != "" {
		return ""
	}
	if Reasons[m.why] == "" {
		return "there is no such reason"
	}
	for _, f := range found {
		if f.Why != "" {
			return "it has a reason"
		}
		f.Why = Reasons[m.why]
	}
	return ""
}

var atEnd = regexp.MustCompile(`(?m) --! ?(.*)$`)

// A mark is about the mutants of one class on its line.
type mark struct {
	line  int
	text  string
	guard string // its name; or
	why   string // the name of the reason
	class Class  // "" if a guard has none
	nth   int    // 0: all of them
}

// marks parses the marks of a file.
func marks(src string) (all []mark) {
	for i, line := range strings.Split(src, "\n") {
		found := atEnd.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		for part := range strings.SplitSeq(found[1], "; ") {
			m, words := mark{line: i + 1}, strings.Fields(part)
			if m.why, words = words[0], words[1:]; m.why == "guard" {
				m.why, m.guard, words = "", words[0], words[1:]
			}
			if len(words) == 0 {
				words = []string{""}
			}
			for _, w := range words {
				name, nth, _ := strings.Cut(w, ".")
				m.text, m.class = strings.TrimSpace(m.guard+m.why+" "+w), Class(name)
				m.nth, _ = strconv.Atoi(nth) // 0 without a number
				all = append(all, m)
			}
		}
	}
	return all
}

// of returns the mutants that a mark is about.
func (m *mark) of(mutants []Mutant) (found []*Mutant) {
	nth := 0
	for i := range mutants {
		if f := &mutants[i]; f.Line == m.line && f.Class == m.class {
			if nth++; m.nth == 0 || m.nth == nth {
				found = append(found, f)
			}
		}
	}
	return found
}
