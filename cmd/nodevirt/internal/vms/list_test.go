package vms

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/golden"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/cli"
	"github.com/nodevirt/nodevirt/shim/vminfo"
)

// sickNode is a shim with a VM that is well, one without details, one with details that are
// not JSON, and one that is removed meanwhile.
type sickNode struct {
	runtimeapi.UnimplementedRuntimeServiceServer
}

func (sickNode) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{}, nil
}

func (sickNode) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	r := &runtimeapi.ListPodSandboxResponse{}
	for _, name := range []string{"well", "sick", "mad", "gone"} {
		r.Items = append(r.Items, &runtimeapi.PodSandbox{
			Id: "pod-" + name, RuntimeHandler: "vm", Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default"},
		})
	}
	return r, nil
}

func (sickNode) ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	r := &runtimeapi.ListContainersResponse{}
	for _, name := range []string{"sick", "mad", "gone", "well"} {
		r.Containers = append(r.Containers, &runtimeapi.Container{
			Id: name, PodSandboxId: "pod-" + name, State: runtimeapi.ContainerState_CONTAINER_RUNNING,
			CreatedAt: running().Status.GetCreatedAt(), Image: &runtimeapi.ImageSpec{Image: "example.com/disks/debian:12"},
		})
	}
	return r, nil
}

func (sickNode) ContainerStatus(_ context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	switch v := running(); r.GetContainerId() {
	case "sick":
		return nil, status.Error(codes.Internal, "its folder is \x1b[2Junreadable")
	case "gone":
		return nil, status.Error(codes.NotFound, "no such container")
	case "mad":
		return &runtimeapi.ContainerStatusResponse{Status: v.Status, Info: map[string]string{vminfo.Key: "{"}}, nil
	default:
		info, err := json.Marshal(vminfo.Info{PID: v.PID, VM: &v.Info})
		return &runtimeapi.ContainerStatusResponse{Status: v.Status, Info: map[string]string{vminfo.Key: string(info)}}, err
	}
}

func TestOneSickVMHidesNoOther(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, sickNode{})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	n, err := cli.Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()

	all, err := List(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	var ps, text bytes.Buffer
	if err := cli.Table(&ps, rows(all, now())); err != nil {
		t.Fatal(err)
	}
	remark(&ps, all)
	golden.Assert(t, ps.String(), "ps-sick.txt")
	if err := cli.JSON(&text, details(all, now())); err != nil {
		t.Fatal(err)
	}
	var told []Detail
	if err := json.Unmarshal(text.Bytes(), &told); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"mad", "sick", "well"} {
		if d := told[i]; d.Name != name || (d.Error == "") != (name == "well") || d.Image != "example.com/disks/debian:12" {
			t.Errorf("the JSON is %+v", d)
		}
	}

	sick, err := Find(t.Context(), n, "sick")
	if err != nil {
		t.Fatal(err)
	}
	ps.Reset()
	if err := describe(&ps, detail(sick, now())); err != nil || !strings.Contains(ps.String(), "unreadable") {
		t.Errorf("inspect prints %s, %v", ps.String(), err)
	}
	if _, err := Find(t.Context(), n, "gone"); err == nil {
		t.Error("a VM that has gone was found")
	}
}
