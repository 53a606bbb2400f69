package node_test

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

// options are of a node without a shim, which has separate tests.
func options() node.Options {
	return node.Options{Components: []string{node.Libvirtd}, Subnet: netip.MustParsePrefix("10.99.0.0/24")}
}

// TestNode runs all that one node can show. The last test stops the node.
func TestNode(t *testing.T) {
	n := node.ForTest(t, options())
	for _, test := range []struct {
		name string
		run  func(*testing.T, *node.Node)
	}{
		{"a pod runs and leaves nothing", testPod},
		{"pods outlive the daemons", testRestarts},
		{"a second start uses what runs", testSecondStart},
		{"commands are killed with their context", testKilledCommand},
		{"a guest runs under its own uid", testGuest},
		{"images that were written are found", testPristine},
		{"stop leaves nothing on the machine", testStop},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, n) })
	}
}

// run starts a pod with a container that says hello and stays, and returns both ids and what
// the pod was made of.
func run(t *testing.T, n *node.Node, name string) (pod, container string, p node.Pod) {
	t.Helper()
	image, err := n.PushBusybox(t.Context())
	assert.NilError(t, err)
	p = n.NewPod(name)
	pod, err = n.RunPod(t.Context(), p, "")
	assert.NilError(t, err)
	c := node.NewContainer("c", image, "sh", "-c", "echo hello from $(hostname); exec sleep 1000")
	container, err = n.CreateContainer(t.Context(), pod, p, c)
	assert.NilError(t, err)
	crictl(t, n, "start", container)
	return pod, container, p
}

func crictl(t *testing.T, n *node.Node, args ...string) string {
	t.Helper()
	out, err := n.Output(t.Context(), "crictl", args...)
	assert.NilError(t, err)
	return strings.TrimSpace(out)
}

func census(t *testing.T, n *node.Node) node.Census {
	t.Helper()
	c, err := n.Leftovers(t.Context())
	assert.NilError(t, err)
	return c
}

func testPod(t *testing.T, n *node.Node) {
	// The first pod brings the bridge, which stays.
	pod, _, p := run(t, n, "first")
	assert.NilError(t, n.RemovePod(t.Context(), pod, p))
	before, err := n.Settled(t.Context())
	assert.NilError(t, err)

	pod, container, p := run(t, n, "second")
	if got := crictl(t, n, "exec", container, "hostname"); got != "second" {
		t.Errorf("host name in the pod: %q", got)
	}
	diff := strings.Join(census(t, n).Diff(before), "\n")
	for _, want := range []string{"+ netns ", "+ link veth ", "+ mount ", "+ snapshot ", "pause", "+ cgroup "} {
		if !strings.Contains(diff, want) {
			t.Errorf("a running pod does not show as %q in\n%s", want, diff)
		}
	}

	assert.NilError(t, n.RemovePod(t.Context(), pod, p))
	if diff, err := n.Since(t.Context(), before); len(diff) > 0 || err != nil {
		t.Errorf("after the pod's end: %v:\n%s", err, strings.Join(diff, "\n"))
	}
}

func testRestarts(t *testing.T, n *node.Node) {
	pod, container, p := run(t, n, "restarts")
	for _, name := range []string{node.Containerd, node.Libvirtd, node.Registry} {
		assert.NilError(t, n.Restart(t.Context(), name))
	}
	assert.NilError(t, n.Kill(t.Context(), node.Containerd, syscall.SIGKILL))
	assert.NilError(t, n.Resume(t.Context(), node.Containerd))
	if got := crictl(t, n, "exec", container, "echo", "here"); got != "here" {
		t.Errorf("exec after restarts: %q", got)
	}
	assert.NilError(t, n.RemovePod(t.Context(), pod, p))
}

func testSecondStart(t *testing.T, n *node.Node) {
	pod, container, p := run(t, n, "second-start")
	o := options()
	o.Dir = n.Dir()
	again, err := node.Start(t.Context(), o)
	assert.NilError(t, err)
	if again.PID() != n.PID() {
		t.Errorf("first process: %d, then %d", n.PID(), again.PID())
	}
	attached, err := node.Attach(n.Dir())
	assert.NilError(t, err)
	if got := crictl(t, attached, "exec", container, "echo", "here"); got != "here" {
		t.Errorf("exec after the second start: %q", got)
	}
	assert.NilError(t, n.RemovePod(t.Context(), pod, p))
}

func testStop(t *testing.T, n *node.Node) {
	run(t, n, "stopped")
	if got := machine(t, n); len(got) == 0 {
		t.Fatal("a node that is up does not show on the machine")
	}
	assert.NilError(t, n.Stop(t.Context()))
	if got := machine(t, n); len(got) > 0 {
		t.Errorf("after stop: %s", strings.Join(got, "\n"))
	}
	if _, err := node.Attach(n.Dir()); err == nil {
		t.Error("a stopped node can be attached to")
	}
	if out, err := exec(t.Context(), n); err == nil {
		t.Errorf("a command ran in a stopped node: %s", out)
	}
}

func exec(ctx context.Context, n *node.Node) (string, error) { return n.Output(ctx, "true") }

// machine returns what the host shows of a node: processes whose command line or root has to do
// with its folder, mounts of it, and cgroups of its name.
func machine(t *testing.T, n *node.Node) []string {
	t.Helper()
	var found []string
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	assert.NilError(t, err)
	for _, path := range lines {
		text, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(text), n.Dir()) {
			found = append(found, "process "+strings.ReplaceAll(string(text), "\x00", " "))
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	assert.NilError(t, err)
	if strings.Contains(string(mounts), n.Dir()) {
		found = append(found, "mount")
	}
	for _, pattern := range []string{"/sys/fs/cgroup/" + n.Name(), "/sys/fs/cgroup/*/" + n.Name()} {
		dirs, err := filepath.Glob(pattern)
		assert.NilError(t, err)
		found = append(found, dirs...)
	}
	return found
}

func testKilledCommand(t *testing.T, n *node.Node) {
	ctx, cancel := context.WithCancel(t.Context())
	cmd := n.Command(ctx, "sh", "-c", "sleep 12345 & echo up; wait")
	out, err := cmd.StdoutPipe()
	assert.NilError(t, err)
	assert.NilError(t, cmd.Start())
	if _, err := out.Read(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := cmd.Wait(); err == nil {
		t.Error("a killed command ended well")
	}
	// What was killed ends when it next has a processor.
	wait.Until(t, "what the command started to end", func() bool {
		processes, err := n.Output(t.Context(), "ps", "ax")
		assert.NilError(t, err)
		return !strings.Contains(processes, "sleep 12345")
	})
}

func TestALongPathIsRefused(t *testing.T) {
	_, err := node.Start(t.Context(), node.Options{Dir: "/tmp/" + strings.Repeat("x", 80)})
	if err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("error: %v", err)
	}
}
