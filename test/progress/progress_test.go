package progress_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/test/progress"
)

func TestEachLineSaysWhoseItIs(t *testing.T) {
	var out strings.Builder
	fmt.Fprint(progress.Of("node-1", &out), "shim is ready\nkubelet is ready\n")
	if want := "node-1: shim is ready\nnode-1: kubelet is ready\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
