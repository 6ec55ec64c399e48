package failpoints_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/child"
	"github.com/worqr/worqr/internal/redistest"
)

func TestMain(m *testing.M) {
	if c, given := child.Given[config](); given {
		play(c)
		return
	}
	if err := flag.Set("test.parallel", "32"); err != nil { // cells mostly wait; Run parses -parallel
		panic(err)
	}
	os.Exit(redistest.Main(func() int {
		c, err := redis.DialURL(redistest.URL())
		if err == nil {
			err = teach(c)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = c.Close() }()
		return m.Run()
	}))
}
