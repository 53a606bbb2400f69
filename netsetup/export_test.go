package netsetup

import "testing"

// NewNode makes a node with a pod, and returns its Setup and the pod's namespace.
func NewNode(t *testing.T) (s *Setup, netns string) {
	t.Helper()
	n := newNode(t)
	return n.setup, n.addPod(t)
}
