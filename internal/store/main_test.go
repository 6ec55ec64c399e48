package store

import (
	"os"
	"testing"

	"github.com/worqr/worqr/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m.Run)) }
