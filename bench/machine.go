package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/worqr/worqr/internal/redisserver"
)

// machine describes the machine in one line.
func machine() string {
	parts := []string{"machine of an unknown kind"}
	if model := field("/proc/cpuinfo", "model name"); model != "" {
		parts[0] = model
	}
	parts = append(parts, strconv.Itoa(runtime.NumCPU())+" cores")
	if total, ok := memory("MemTotal"); ok {
		parts = append(parts, figure(float64(total)/(1<<30))+" GiB")
	}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		parts = append(parts, "Linux "+strings.TrimSpace(string(release)))
	} else {
		parts = append(parts, runtime.GOOS)
	}
	return strings.Join(parts, ", ")
}

// field returns what comes first after a name in a file of /proc.
func field(file, name string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return "" // there is no /proc
	}
	for line := range strings.Lines(string(text)) {
		if before, after, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(before) == name {
			return strings.TrimSpace(after)
		}
	}
	return ""
}

// memory returns a value of the machine's memory, in bytes.
func memory(name string) (int64, bool) {
	kib, err := strconv.ParseInt(strings.TrimSuffix(field("/proc/meminfo", name), " kB"), 10, 64)
	return kib << 10, err == nil
}

// versions describes the measured versions in one line.
func versions(ctx context.Context) string {
	parts := []string{strings.Replace(runtime.Version(), "go", "Go ", 1)}
	if path, err := redisserver.Program(); err == nil {
		said, _ := exec.CommandContext(ctx, path, "--version").Output() // if it fails, the version is unknown
		for word := range strings.FieldsSeq(string(said)) {
			if v, ok := strings.CutPrefix(word, "v="); ok {
				parts = append(parts, strings.TrimSuffix(filepath.Base(path), "-server")+" "+v)
			}
		}
	}
	if built, ok := debug.ReadBuildInfo(); ok {
		for _, m := range built.Deps {
			switch m.Path {
			case "github.com/gomodule/redigo", "github.com/hibiken/asynq":
				parts = append(parts, filepath.Base(m.Path)+" "+m.Version)
			}
		}
	}
	return strings.Join(append(parts, "worqr "+commit(ctx)), ", ")
}

// commit returns the commit of this checkout.
func commit(ctx context.Context) string {
	hash, err := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "of an unknown commit"
	}
	name := strings.TrimSpace(string(hash))
	if changed, err := exec.CommandContext(ctx, "git", "status", "--porcelain", "--untracked-files=no", "--", "*.go", "*.lua").Output(); err == nil && len(changed) > 0 {
		name += " with changes"
	}
	return name
}
