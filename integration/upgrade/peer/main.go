// Command peer is a peer of package upgrade. It is built from this state of the repository and from
// an older one.
package main

import (
	"fmt"
	"os"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/integration/load"
	"github.com/worqr/worqr/internal/child"
)

func main() {
	config, given := child.Given[load.Config]()
	if !given {
		fmt.Fprintln(os.Stderr, "peer is started by the tests of integration/upgrade")
		os.Exit(2)
	}
	os.Exit(load.Main(config, worqr.Options{}))
}
