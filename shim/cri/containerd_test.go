package cri

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/console"
	"github.com/nodevirt/nodevirt/shim/disk"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/metrics"
	"github.com/nodevirt/nodevirt/shim/nodeproblems"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/tpm"
	"github.com/nodevirt/nodevirt/shim/virtiofs"
	"github.com/nodevirt/nodevirt/shim/vm"
	"github.com/nodevirt/nodevirt/test/node"
)

// unlimited stands for the limits of VMs' reach: no VM runs here.
type unlimited struct{}

func (unlimited) Restore(context.Context, map[uint32][]netip.AddrPort, func(uint32) bool) error {
	return nil
}
func (unlimited) Allow(context.Context, uint32, []netip.AddrPort) error { return nil }
func (unlimited) Watch(ctx context.Context)                             { <-ctx.Done() }

// realVMs are the VMs of a node without libvirtd, with the VM containers of the records.
func realVMs(t *testing.T, n *node.Node, backend *grpc.ClientConn, records *record.Store) *vm.VMs {
	t.Helper()
	dir := t.TempDir()
	mounts := filepath.Join(dir, "mounts")
	if err := os.Mkdir(mounts, 0o700); err != nil {
		t.Fatal(err)
	}
	client, err := containerd.New(n.ContainerdSocket(), containerd.WithDefaultNamespace("k8s.io"))
	if err != nil {
		t.Fatal(err)
	}
	closed(t, client)
	log := slog.New(slog.DiscardHandler)
	consoles, err := console.New(0, log)
	if err != nil {
		t.Fatal(err)
	}
	expander, err := expand.New(expand.Options{Dir: filepath.Join(dir, "expanded"), Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	tpms, err := tpm.New("swtpm", filepath.Join(dir, "tpms"))
	if err != nil {
		t.Fatal(err)
	}
	filesystems, err := virtiofs.New(filepath.Join(dir, "files"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := vm.New(t.Context(), vm.Options{
		Problems: &nodeproblems.Problems{},
		Metrics:  metrics.New(),
		Records:  records, Logger: log, Consoles: consoles,
		Pods: runtimeapi.NewRuntimeServiceClient(Native(backend)), Images: runtimeapi.NewImageServiceClient(Native(backend)),
		Unfinished: client.SandboxStore(),
		Unpacker:   imageunpack.New(client, imageunpack.Options{Namespace: "k8s.io", Snapshotter: "overlayfs", MountDir: mounts, MaxDiskSize: 1 << 40}),
		Expander:   expander,
		Disks:      disk.New(disk.Options{Folder: records.ContainerDir, Expander: expander, Reach: unlimited{}}),
		Network:    netsetup.New(netsetup.Options{Dnsmasq: "dnsmasq", Dir: dir, Logger: log}),
		TPMs:       tpms, Filesystems: filesystems,
		Driver: domain.NewDriver("qemu:///none", dir, log), Accelerator: domain.TCG,
		ConsoleDir: filepath.Join(dir, "consoles"), AgentDir: filepath.Join(dir, "agents"), DisplayDir: filepath.Join(dir, "displays"),
		MigrationDir: filepath.Join(dir, "migrations"),
		UIDBase:      5000, UIDCount: 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	closed(t, m)
	return m
}

// TestContainerd puts the front before a real containerd with an ordinary pod and a VM's.
func TestContainerd(t *testing.T) {
	n := node.ForTest(t, node.Options{Components: []string{node.Registry, node.Containerd}})
	backend, err := Dial(n.ContainerdSocket())
	if err != nil {
		t.Fatal(err)
	}
	closed(t, backend)
	records, err := record.Open(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	vms := realVMs(t, n, backend, records)
	var problems []nodeproblems.Problem
	front := New(Options{
		Problems:  func() []nodeproblems.Problem { return problems },
		Backend:   backend,
		Sandboxes: vms.Sandboxes, Containers: vms.Lifecycle, Reports: vms.Reports, Guests: vms.Guests, Events: vms.Events,
		Handler: "vm", Logger: slog.New(slog.DiscardHandler), Metrics: metrics.New(),
	})
	socket := listen(t, front.GRPC())
	w := wire{client: dialRaw(t, socket), direct: dialRaw(t, n.ContainerdSocket())}
	cri, err := node.DialCRI(socket)
	if err != nil {
		t.Fatal(err)
	}
	closed(t, cri)
	pods := runtimeapi.NewRuntimeServiceClient(cri)

	// As long as there is no VM, a client sees no difference.
	unlike(t, w, nil)
	plain := run(t, n, pods, "plain", "")
	unlike(t, w, nil)

	// A VM's sandbox is shown with the handler that it was asked for with.
	guest := run(t, n, pods, "guest", "vm")
	for _, id := range []string{guest, guest[:12]} {
		reply, err := pods.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
		if err != nil || reply.GetStatus().GetRuntimeHandler() != "vm" {
			t.Errorf("status of %s: %v, %v", id, reply, err)
		}
	}
	for id, want := range map[string]string{plain: "", guest: "vm"} {
		if got := handlers(t, pods)[id]; got != want {
			t.Errorf("sandbox %s is listed with handler %q, want %q", id, got, want)
		}
	}
	unlike(t, w, []string{runtimeapi.RuntimeService_ListPodSandbox_FullMethodName, runtimeapi.RuntimeService_StreamPodSandboxes_FullMethodName})
	if reply, err := pods.Status(t.Context(), &runtimeapi.StatusRequest{}); err != nil ||
		!slices.ContainsFunc(reply.GetRuntimeHandlers(), func(h *runtimeapi.RuntimeHandler) bool { return h.GetName() == "vm" }) {
		t.Errorf("handlers: %v, %v", reply.GetRuntimeHandlers(), err)
	}

	// The verbose status alone has the node's problems.
	problems = []nodeproblems.Problem{{Reason: nodeproblems.PodsLost, Message: "restore its root"}}
	for verbose, want := range map[bool]string{false: "", true: `[{"reason":"PodsLost","message":"restore its root"}]`} {
		reply, err := pods.Status(t.Context(), &runtimeapi.StatusRequest{Verbose: verbose})
		if err != nil || reply.GetInfo()[nodeproblems.Info] != want || verbose && len(reply.GetInfo()) < 2 {
			t.Errorf("verbose %t: %v, %v", verbose, reply.GetInfo(), err)
		}
	}

	// A pod of the host's network can't hold a VM: one that says that it wants to is not made.
	host := config("host")
	host.Annotations = map[string]string{"nodevirt.io/vm-container": "guest"}
	host.Linux = &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
	}}
	_, err = pods.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: host, RuntimeHandler: "vm"})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("a pod of the host's network: %v", err)
	}
	_, err = pods.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config("other"), RuntimeHandler: "gvisor"})
	if status.Code(err) == codes.OK {
		t.Error("containerd accepts an unknown handler")
	}
	if all := handlers(t, pods); len(all) != 2 {
		t.Errorf("sandboxes: %v", all)
	}
	if intents, err := records.Intents(); err != nil || len(intents) != 0 {
		t.Errorf("intents: %v, %v", intents, err)
	}

	for _, id := range []string{plain, guest[:20], guest} {
		for range 2 { // both are idempotent
			if _, err := pods.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
				t.Error(err)
			}
		}
		for range 2 {
			if _, err := pods.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
				t.Error(err)
			}
		}
	}
	if left, err := records.Sandboxes(); err != nil || len(left) != 0 {
		t.Errorf("records of sandboxes: %v, %v", left, err)
	}
	unlike(t, w, nil)
}

// unlike compares the front with containerd, method by method, but for those named: replies that
// don't change by themselves, and errors.
func unlike(t *testing.T, w wire, except []string) {
	t.Helper()
	none, err := encode(&runtimeapi.StopContainerRequest{ContainerId: "none"})
	if err != nil {
		t.Fatal(err)
	}
	for method, request := range map[string]frame{
		runtimeapi.RuntimeService_Version_FullMethodName:            {},
		runtimeapi.RuntimeService_RuntimeConfig_FullMethodName:      {},
		runtimeapi.RuntimeService_ListContainers_FullMethodName:     {},
		runtimeapi.RuntimeService_StreamContainers_FullMethodName:   {},
		runtimeapi.RuntimeService_ListPodSandbox_FullMethodName:     {},
		runtimeapi.RuntimeService_StreamPodSandboxes_FullMethodName: {},
		runtimeapi.RuntimeService_ListContainerStats_FullMethodName: {},
		runtimeapi.ImageService_ListImages_FullMethodName:           {},
		runtimeapi.RuntimeService_ContainerStatus_FullMethodName:    none,
		runtimeapi.RuntimeService_StartContainer_FullMethodName:     none,
		runtimeapi.RuntimeService_StopContainer_FullMethodName:      none,
		runtimeapi.RuntimeService_RemoveContainer_FullMethodName:    none,
		runtimeapi.RuntimeService_PodSandboxStatus_FullMethodName:   none,
		runtimeapi.RuntimeService_StopPodSandbox_FullMethodName:     none,
		runtimeapi.RuntimeService_RemovePodSandbox_FullMethodName:   none,
		runtimeapi.RuntimeService_CreateContainer_FullMethodName:    none,
		runtimeapi.RuntimeService_Exec_FullMethodName:               none,
		unknown: none,
	} {
		want, got := do(t.Context(), t, w.direct, method, request), do(t.Context(), t, w.client, method, request)
		if slices.Contains(except, method) {
			if bytes.Equal(bytes.Join(raw(want.replies), nil), bytes.Join(raw(got.replies), nil)) {
				t.Errorf("%s is the same", method)
			}
			continue
		}
		t.Run(filepath.Base(method), func(t *testing.T) { same(t, want, got) })
	}
}

func raw(frames []frame) (all [][]byte) {
	for _, f := range frames {
		all = append(all, f)
	}
	return all
}

func config(name string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name}, Linux: &runtimeapi.LinuxPodSandboxConfig{},
	}
}

func run(t *testing.T, n *node.Node, pods runtimeapi.RuntimeServiceClient, name, handler string) string {
	t.Helper()
	c := config(name)
	c.Linux.CgroupParent = n.CgroupParent()
	made, err := pods.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: c, RuntimeHandler: handler})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // where the test did not come so far
		_, err := pods.RemovePodSandbox(context.WithoutCancel(t.Context()), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: made.GetPodSandboxId()})
		if err != nil {
			t.Error(err)
		}
	})
	return made.GetPodSandboxId()
}

// handlers are the listed sandboxes', and those in the stream must be the same.
func handlers(t *testing.T, pods runtimeapi.RuntimeServiceClient) map[string]string {
	t.Helper()
	all := map[string]string{}
	reply, err := pods.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range reply.GetItems() {
		all[p.GetId()] = p.GetRuntimeHandler()
	}
	stream, err := pods.StreamPodSandboxes(t.Context(), &runtimeapi.StreamPodSandboxesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for {
		some, err := stream.Recv()
		if err != nil {
			return all // the end, or a containerd that has no such method
		}
		for _, p := range some.GetPodSandboxes() {
			if all[p.GetId()] != p.GetRuntimeHandler() {
				t.Errorf("streamed with handler %q, listed with %q", p.GetRuntimeHandler(), all[p.GetId()])
			}
		}
	}
}
