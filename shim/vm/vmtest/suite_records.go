package vmtest

import (
	"os"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/lifecycle"
)

// recordWriter is what a table does with records.
type recordWriter interface {
	PutContainer(r record.Container) error
	RemoveContainer(id string) error
	PutSandbox(r record.Sandbox) error
	RemoveSandbox(id string) error
	PutIntent(key string, r record.Sandbox) error
	RemoveIntent(key string) error
	Intents() (map[string]record.Sandbox, error)
	ContainerDir(id string) string
}

// TestRecords is the suite of records on disk.
func TestRecords(t *testing.T, read lifecycle.Records, write recordWriter) {
	t.Helper()
	pod, id, key := strings.Repeat("a", 64), strings.Repeat("b", 64), strings.Repeat("c", 64)
	sandbox := record.Sandbox{ID: pod, Handler: "vm"}
	sandbox.Config.Value = &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "pod"}}
	intent := sandbox
	intent.ID = "" // containerd has not named it yet
	r := record.Container{ID: id, SandboxID: pod, State: record.Creating, Sandbox: sandbox.Config}
	r.Config.Value = &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "vm"}}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	want := func(containers, sandboxes, intents int) {
		t.Helper()
		c, err := read.Containers()
		do(err)
		s, err := read.Sandboxes()
		do(err)
		i, err := write.Intents()
		do(err)
		if len(c) != containers || len(s) != sandboxes || len(i) != intents {
			t.Fatalf("%d containers, %d sandboxes, %d intents; want %d, %d, %d", len(c), len(s), len(i), containers, sandboxes, intents)
		}
	}
	do(read.Sweep())
	want(0, 0, 0)
	do(write.PutIntent(key, intent))
	do(write.PutSandbox(sandbox))
	do(write.PutContainer(r))
	if _, err := os.Stat(write.ContainerDir(id)); err != nil {
		t.Errorf("the container's folder: %v", err)
	}
	want(1, 1, 1)
	r.State = record.Created
	do(write.PutContainer(r))
	all, err := read.Containers()
	do(err)
	if len(all) != 1 || all[0].State != record.Created || all[0].Sandbox.Value.GetMetadata().GetName() != "pod" {
		t.Errorf("containers %+v", all)
	}
	if broken, err := read.MoveBroken(); err != nil || len(broken) != 0 {
		t.Errorf("moved: %v, %v", broken, err)
	}
	if refused, err := read.Refused(); err != nil || len(refused) != 0 {
		t.Errorf("refused: %v, %v", refused, err)
	}
	do(read.RemoveUnrecorded(func(string) bool { return false }))
	want(1, 1, 1)
	for range 2 {
		do(write.RemoveIntent(key))
		do(write.RemoveContainer(id))
		do(write.RemoveSandbox(pod))
	}
	if _, err := os.Stat(write.ContainerDir(id)); !os.IsNotExist(err) {
		t.Errorf("the folder of a container that is gone: %v", err)
	}
	want(0, 0, 0)
}
