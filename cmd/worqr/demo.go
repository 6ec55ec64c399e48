package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"
)

type demoCommand struct {
	form
	Redis   string  `env:"REDIS_URL" placeholder:"URL" help:"Redis to use. The demo has its own prefix, and removes its keys at the end. The Redis user needs access to all keys, and SCAN. By default, the demo runs an in-memory Redis."`
	Seconds float64 `default:"14" help:"Maximum duration in seconds."`
	Plain   bool    `help:"Print lines instead of drawing on the terminal."`
}

// Validate is called by kong.
func (c *demoCommand) Validate() error {
	if c.Seconds < 3 || c.Seconds > 3600 {
		return usage("--seconds must be from 3 to 3600")
	}
	return nil
}

// Run shows the demo, and fails when a task was lost.
func (c *demoCommand) Run(ctx context.Context, out io.Writer) error {
	f, ok := out.(*os.File)
	live := ok && !c.Plain && !c.JSON && isTerminal(f)
	var on stage = &log{out: out, next: time.Second}
	switch {
	case c.JSON:
		on = &jsonLog{out: out}
	case live:
		on = openScreen(f)
	}
	s, story, err := c.show(ctx, on)
	on.close()
	st := styleFor(live)
	if live && len(story) > 0 { // the alternate screen is gone, and the story with it
		w, _ := sizeOf(f)
		fmt.Fprintf(out, "\n%s\n", tell(story, w, st)) // printing the summary reports the error
	}
	if err != nil {
		return err
	}
	if c.JSON {
		err = printJSON(out, s)
	} else {
		err = s.print(out, st)
	}
	return toldIf(s.Lost > 0, err)
}
