package console_test

import (
	"log/slog"
	"testing"

	"github.com/nodevirt/nodevirt/shim/console"
	"github.com/nodevirt/nodevirt/shim/vm/vmtest"
)

// TestSuite checks that real consoles are followed as the fake ones are.
func TestSuite(t *testing.T) {
	l, err := console.New(0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	vmtest.TestConsoles(t, l)
}
