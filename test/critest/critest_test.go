//go:build critest

package critest

import (
	"fmt"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/node"
)

// bin is where the programs are, as seen from this folder, in which the test runs.
const bin = "../../bin"

// way is a way to containerd's CRI.
type way struct {
	name    string
	socket  func(*node.Node) string
	handler string
}

var (
	direct  = way{"containerd", (*node.Node).ContainerdSocket, ""}
	through = []way{
		{"through the shim", (*node.Node).ShimSocket, ""},
		{"through the shim, handler vm", (*node.Node).ShimSocket, "vm"},
	}
)

// TestCritest compares the shim with containerd: each spec must end in the same way with both.
func TestCritest(t *testing.T) {
	all := newBuilder(t, guest.Options{}).all()
	built := versions(t, bin)
	want := kept(t, built)
	ways := through
	if want == nil {
		ways = append([]way{direct}, through...)
	}
	got := runAll(t, all, ways)
	if want == nil {
		want = got[direct.name]
		keep(t, built, want)
	} else if differ(got, want) {
		// This machine may be unlike the one on which the golden file was written.
		t.Log("the shim seems to differ: asking containerd alone")
		want = runAll(t, all, []way{direct})[direct.name]
	}
	fmt.Println(header())
	fmt.Println(want.row(direct.name))
	for _, w := range through {
		fmt.Println(got[w.name].row(w.name))
		for _, line := range got[w.name].unlike(want) {
			t.Errorf("%s: %s", w.name, line)
		}
	}
}

// runAll runs critest by several ways at once, each on a separate node.
func runAll(t *testing.T, all map[string]v1.Image, ways []way) map[string]result {
	t.Helper()
	results := make([]result, len(ways))
	t.Run("run", func(t *testing.T) {
		for i, w := range ways {
			t.Run(w.name, func(t *testing.T) {
				t.Parallel()
				results[i] = run(t, all, w)
			})
		}
	})
	got := map[string]result{}
	for i, w := range ways {
		if results[i] == nil {
			t.FailNow() // its run says why
		}
		got[w.name] = results[i]
	}
	return got
}

func differ(got map[string]result, want result) bool {
	for _, r := range got {
		if len(r.unlike(want)) > 0 {
			return true
		}
	}
	return false
}
