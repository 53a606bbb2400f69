package cri

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// oneVM reports the VM of a pod, and saves it.
type oneVM struct {
	noVMs
	state runtimeapi.ContainerState
	limit time.Duration
}

func (v *oneVM) Statuses(string) []*runtimeapi.ContainerStatus {
	return []*runtimeapi.ContainerStatus{
		{Id: "old", Metadata: &runtimeapi.ContainerMetadata{Name: "vm"}, State: runtimeapi.ContainerState_CONTAINER_EXITED},
		{Id: "vm1", Metadata: &runtimeapi.ContainerMetadata{Name: "vm"}, State: v.state},
	}
}

func (v *oneVM) Checkpoint(_ context.Context, id, location string, limit time.Duration) error {
	v.limit = limit
	return os.WriteFile(location, []byte(id), 0o600)
}

func TestSaveAPod(t *testing.T) {
	v := &oneVM{state: runtimeapi.ContainerState_CONTAINER_RUNNING}
	calls := &podCheckpointCalls{reports: v, checkpoints: v}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	folder := t.TempDir()
	request := func(change func(*runtimeapi.CheckpointPodRequest)) error {
		r := &runtimeapi.CheckpointPodRequest{PodSandboxId: "pod", OutputPath: folder, ContainerIds: []string{"vm1"}}
		change(r)
		return calls.save(ctx, "pod", r)
	}
	for words, change := range map[string]func(*runtimeapi.CheckpointPodRequest){
		"option \"fast\"":            func(r *runtimeapi.CheckpointPodRequest) { r.Options = map[string]string{"fast": "yes"} },
		"no container is named":      func(r *runtimeapi.CheckpointPodRequest) { r.ContainerIds = nil },
		"is named 2 times":           func(r *runtimeapi.CheckpointPodRequest) { r.ContainerIds = []string{"vm1", "vm1"} },
		"not the absolute path":      func(r *runtimeapi.CheckpointPodRequest) { r.OutputPath = "." },
		"no such file or directory":  func(r *runtimeapi.CheckpointPodRequest) { r.OutputPath = folder + "/none" },
		"only VMs have checkpoints":  func(r *runtimeapi.CheckpointPodRequest) { r.ContainerIds = []string{"vm1", "side"} },
		"name the VM alone, vm1; or": func(r *runtimeapi.CheckpointPodRequest) { r.ContainerIds = []string{"old"} },
	} {
		err := request(change)
		code := status.Code(toStatus(err))
		if err == nil || !strings.Contains(err.Error(), words) || code != codes.InvalidArgument && code != codes.Unimplemented {
			t.Errorf("%s: %v (%s)", words, err, code)
		}
	}
	nothing := func(*runtimeapi.CheckpointPodRequest) {}
	if err := request(nothing); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(folder, "vm.tar")); err != nil || string(data) != "vm1" {
		t.Errorf("%q, %v", data, err)
	}
	if v.limit <= 0 || v.limit > 45*time.Second {
		t.Errorf("the guest may be paused for %s of a minute", v.limit)
	}
	if err := request(nothing); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("into a folder with a checkpoint: %v", err)
	}
	v.state = runtimeapi.ContainerState_CONTAINER_EXITED
	if err := request(nothing); err == nil || !strings.Contains(err.Error(), "its VM does not run") {
		t.Errorf("of a VM that ended: %v", err)
	}
}

func TestSavedPod(t *testing.T) {
	folder := t.TempDir()
	vm := &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "vm"}}
	r := &runtimeapi.RestorePodRequest{CheckpointPath: folder, ContainerConfigs: []*runtimeapi.ContainerConfig{vm}}
	refused := func(words string) {
		t.Helper()
		if _, _, err := saved(r); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v; want %q", err, words)
		}
	}
	refused("has no checkpoint")
	for _, name := range []string{"vm.tar", "notes"} {
		if err := os.WriteFile(filepath.Join(folder, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config, archive, err := saved(r)
	if err != nil || config != vm || archive != filepath.Join(folder, "vm.tar") {
		t.Errorf("%v, %q, %v", config, archive, err)
	}
	r.ContainerConfigs = append(r.ContainerConfigs, &runtimeapi.ContainerConfig{})
	refused("request exactly this one")
	r.ContainerConfigs = []*runtimeapi.ContainerConfig{{Metadata: &runtimeapi.ContainerMetadata{Name: "other"}}}
	refused(`the checkpoint has container "vm"`)
	r.Options = map[string]string{"x": ""}
	refused("there are no options")
	r.Options, r.CheckpointPath = nil, "relative"
	refused("not the absolute path")
	r.CheckpointPath = folder
	if err := os.WriteFile(filepath.Join(folder, "more.tar"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused("several containers")
}
