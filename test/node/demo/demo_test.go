package demo_test

import (
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/node/demo"
)

// TestDemo runs the demonstration twice, and then with a broken shim.
func TestDemo(t *testing.T) {
	n := node.ForTest(t, node.Options{})
	t.Run("runs and runs again", func(t *testing.T) { testTwice(t, n) })
	t.Run("a failure names its step and shows the log", func(t *testing.T) { testFailure(t, n) })
}

func testTwice(t *testing.T, n *node.Node) {
	for _, wants := range [][]string{
		{"crictl runp --runtime vm: pod hello", "the guest answers at http://", "| nodevirt guest: up", "crictl logs"},
		{"pod hello runs already", "pod client runs already", "the guest answers at http://"},
	} {
		var out strings.Builder
		if err := demo.Run(t.Context(), node.Options{Dir: n.Dir()}, &out); err != nil {
			t.Fatalf("%v\nafter\n%s", err, out.String())
		}
		for _, want := range wants {
			if !strings.Contains(out.String(), want) {
				t.Errorf("the demo did not say %q:\n%s", want, out.String())
			}
		}
	}
}

func testFailure(t *testing.T, n *node.Node) {
	// A configuration that the shim refuses.
	broken := func(c map[string]any) { c["no-such-setting"] = true }
	var out strings.Builder
	err := demo.Run(t.Context(), node.Options{Dir: n.Dir(), ShimConfig: broken}, &out)
	if err == nil {
		t.Fatalf("the demo ran:\n%s", out.String())
	}
	for _, want := range []string{"bring up the node", "start shim", "shim.log", "no-such-setting"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
}
