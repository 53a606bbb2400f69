package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/golden"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/record"
)

func TestMatches(t *testing.T) {
	c := &runtimeapi.Container{
		Id: "c1", PodSandboxId: "p1", State: runtimeapi.ContainerState_CONTAINER_RUNNING, Labels: map[string]string{"a": "1", "b": ""},
	}
	running := &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}
	created := &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_CREATED}
	for _, f := range []*runtimeapi.ContainerFilter{
		nil, {}, {Id: "c1"}, {PodSandboxId: "p1"}, {State: running}, {LabelSelector: map[string]string{"a": "1"}},
		{LabelSelector: map[string]string{"b": ""}},
		{Id: "c1", PodSandboxId: "p1", State: running, LabelSelector: map[string]string{"a": "1", "b": ""}},
	} {
		if !matches(c, f) {
			t.Errorf("filter %v: does not match", f)
		}
	}
	for _, f := range []*runtimeapi.ContainerFilter{
		{Id: "c2"}, {PodSandboxId: "p2"}, {State: created}, {LabelSelector: map[string]string{"a": "2"}},
		{LabelSelector: map[string]string{"c": ""}}, {Id: "c1", State: created},
	} {
		if matches(c, f) {
			t.Errorf("filter %v: matches", f)
		}
	}
}

// TestStatus: what CRI reports of a container in each state.
func TestStatus(t *testing.T) {
	at := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	r := record.Container{
		ID: fmt.Sprintf("%064x", 1), SandboxID: fmt.Sprintf("%064x", 2), CreatedAt: at, StartedAt: at.Add(time.Second), FinishedAt: at.Add(time.Minute),
		ExitCode: 137, Reason: "Error", Message: "why", LogPath: "/log",
		Image: record.Image{Tag: "disk:1", Ref: "disk@sha256:1", ID: "sha256:2"}, Domain: record.Domain{UID: 5, GID: 6, PID: 7},
	}
	r.Config.Value = &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "vm", Attempt: 1}, Image: &runtimeapi.ImageSpec{Image: "sha256:2"},
		Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"a": "1"},
		Linux: &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 5}},
	}
	for _, state := range []record.State{record.Creating, record.Created, record.Starting, record.Running, record.Exited} {
		r.State = state
		assertJSON(t, status(r), "status-"+string(state)+".json")
		assertJSON(t, listed(r), "listed-"+string(state)+".json")
	}
	r.StartedAt, r.Image.Tag, r.Image.Ref = time.Time{}, "", ""
	assertJSON(t, status(r), "status-never-started.json")
}

// assertJSON compares a message, as JSON, with a golden file.
func assertJSON(t *testing.T, m proto.Message, name string) {
	t.Helper()
	text, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer // protojson's own spaces differ from build to build
	if err := json.Indent(&b, text, "", "  "); err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, b.String()+"\n", name)
}
