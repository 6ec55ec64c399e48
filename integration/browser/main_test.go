// Package browser tests the dashboard in Chromium: every page and every action, live updates, hostile tasks,
// and accessibility.
package browser

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/worqr/worqr/internal/redistest"
)

// chrome is the context of the browser that the tests share; nil if there is none. Each test has a tab, and
// they run one at a time: a hidden tab has no stream, and paints nothing.
var chrome context.Context

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	path := program()
	if path == "" {
		fmt.Println("browser: skipped: there is no Chromium; scripts/setup installs it on Debian")
		return 0
	}
	home, err := os.MkdirTemp("", "worqr-browser-")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer func() { _ = os.RemoveAll(home) }()
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.UserDataDir(home), chromedp.WSURLReadTimeout(time.Minute), // it starts slowly on a busy machine
	}
	for _, flag := range []string{
		"headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "no-default-browser-check", "disable-background-networking",
		"disable-component-update", "disable-sync", "disable-dev-shm-usage", "disable-extensions", "mute-audio",
	} {
		options = append(options, chromedp.Flag(flag, true))
	}
	ctx, end := chromedp.NewExecAllocator(context.Background(), options...)
	defer end()
	ctx, quit := chromedp.NewContext(ctx)
	defer quit()
	if err := chromedp.Do(ctx); err != nil {
		fmt.Println("browser:", path, "doesn't start:", err)
		return 1
	}
	chrome = ctx
	code := redistest.Main(func() int {
		code := m.Run()
		settle()
		return code
	})
	if err := chromedp.Cancel(ctx); err != nil { // waits until it has ended
		fmt.Println("browser:", err)
	}
	return code
}

func program() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// settle waits for the loops of the dashboards: they continue for some seconds after the last stream has ended,
// and would be reported as leaks.
func settle() {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) { // polls
		stacks := make([]byte, 1<<22)
		if !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("dash.(*hub).loop")) {
			return
		}
	}
}
