package guest_test

import (
	"os"
	"testing"

	"github.com/nodevirt/nodevirt/test/guest"
)

func TestZZ(t *testing.T) {
	p, err := guest.Debian(t.Context(), guest.Options{Log: os.Stderr})
	t.Log(p, err)
}
