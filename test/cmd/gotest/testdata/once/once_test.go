package once

import (
	"os"
	"testing"
)

// TestOnce fails at its first try.
func TestOnce(t *testing.T) {
	f, err := os.OpenFile(os.Getenv("SAMPLE_TRIES"), os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		f.Close()
		t.Fatal("the first try")
	}
}
