package e2e

import (
	"slices"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestListsAndTheirFilters(t *testing.T) {
	t.Parallel()
	p, q, other := vmPod(t), vmPod(t, named("second")), runPod(t, "")
	vm := p.vm(suite.halt).start()
	created := q.vm(suite.halt, func(c *runtimeapi.ContainerConfig) { c.Labels["e2e"] = "second" })
	sidecar := p.sidecar("sleep", "1000000").start()
	ordinary := other.sidecar("sleep", "1000000").start()
	all := []*container{vm, created, sidecar, ordinary}

	inState := func(s runtimeapi.ContainerState) *runtimeapi.ContainerStateValue {
		return &runtimeapi.ContainerStateValue{State: s}
	}
	running := inState(runtimeapi.ContainerState_CONTAINER_RUNNING)
	uid := map[string]string{"io.kubernetes.pod.uid": p.config.Metadata.Uid}
	for _, c := range []struct {
		name   string
		filter *runtimeapi.ContainerFilter
		want   []*container
	}{
		{"none", nil, all},
		{"empty", &runtimeapi.ContainerFilter{}, all},
		{"id", &runtimeapi.ContainerFilter{Id: vm.id}, []*container{vm}},
		{"short id", &runtimeapi.ContainerFilter{Id: vm.id[:13]}, []*container{vm}},
		{"id of an ordinary one", &runtimeapi.ContainerFilter{Id: sidecar.id}, []*container{sidecar}},
		{"unknown id", &runtimeapi.ContainerFilter{Id: "no-such-container"}, nil},
		{"pod", &runtimeapi.ContainerFilter{PodSandboxId: p.id}, []*container{vm, sidecar}},
		{"short pod", &runtimeapi.ContainerFilter{PodSandboxId: p.id[:13]}, []*container{vm, sidecar}},
		{"pod and state", &runtimeapi.ContainerFilter{PodSandboxId: p.id, State: running}, []*container{vm, sidecar}},
		{"pod and wrong state", &runtimeapi.ContainerFilter{PodSandboxId: q.id, State: running}, nil},
		{"state", &runtimeapi.ContainerFilter{
			State: inState(runtimeapi.ContainerState_CONTAINER_CREATED),
		}, []*container{created}},
		{"id and wrong state", &runtimeapi.ContainerFilter{Id: created.id[:13], State: running}, nil},
		{"id and wrong pod", &runtimeapi.ContainerFilter{Id: vm.id, PodSandboxId: other.id}, nil},
		{"label", &runtimeapi.ContainerFilter{LabelSelector: uid}, []*container{vm, sidecar}},
		{"label and pod", &runtimeapi.ContainerFilter{
			PodSandboxId: q.id, LabelSelector: map[string]string{"e2e": "second"},
		}, []*container{created}},
		{"label and wrong pod", &runtimeapi.ContainerFilter{
			PodSandboxId: p.id, LabelSelector: map[string]string{"e2e": "second"},
		}, nil},
		{"labels of two", &runtimeapi.ContainerFilter{
			LabelSelector: map[string]string{"e2e": "second", "io.kubernetes.pod.uid": other.config.Metadata.Uid},
		}, nil},
	} {
		var want []string
		for _, w := range c.want {
			want = append(want, w.id)
		}
		slices.Sort(want)
		if got := idsOf(listed(t, c.filter), all); !slices.Equal(got, want) {
			t.Errorf("list by %s: %q; want %q", c.name, got, want)
		}
		if got := idsOf(streamed(t, c.filter), all); !slices.Equal(got, want) {
			t.Errorf("stream by %s: %q; want %q", c.name, got, want)
		}
	}
	l, s := listed(t, &runtimeapi.ContainerFilter{Id: vm.id})[0], vm.status()
	if l.PodSandboxId != p.id || l.Metadata.GetName() != "guest" || l.ImageId != s.ImageId || l.CreatedAt != s.CreatedAt ||
		l.State != runtimeapi.ContainerState_CONTAINER_RUNNING || l.Labels["e2e"] != "guest" {
		t.Errorf("listed as %v", l)
	}
}

func listed(t *testing.T, f *runtimeapi.ContainerFilter) []*runtimeapi.Container {
	t.Helper()
	reply, err := suite.cri.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{Filter: f})
	assert.NilError(t, err)
	return reply.Containers
}

func streamed(t *testing.T, f *runtimeapi.ContainerFilter) []*runtimeapi.Container {
	t.Helper()
	stream, err := suite.cri.StreamContainers(t.Context(), &runtimeapi.StreamContainersRequest{Filter: f})
	assert.NilError(t, err)
	return drained(t, stream, (*runtimeapi.StreamContainersResponse).GetContainers)
}

// idsOf are the sorted ids of a list, without those of other tests; one that is
// listed twice shows twice.
func idsOf(list []*runtimeapi.Container, mine []*container) []string {
	var ids []string
	for _, l := range list {
		if slices.ContainsFunc(mine, func(c *container) bool { return c.id == l.Id }) {
			ids = append(ids, l.Id)
		}
	}
	slices.Sort(ids)
	return ids
}

func TestPodsShowTheirHandler(t *testing.T) {
	t.Parallel()
	for _, p := range []*pod{vmPod(t), runPod(t, "")} {
		want := ""
		if p.config.Linux.Overhead != nil {
			want = "vm"
		}
		if got := p.status().RuntimeHandler; got != want {
			t.Errorf("pod %s has the status's handler %q", p.config.Metadata.Name, got)
		}
		filter := &runtimeapi.PodSandboxFilter{Id: p.id}
		list, err := suite.cri.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{Filter: filter})
		assert.NilError(t, err)
		if len(list.Items) != 1 || list.Items[0].RuntimeHandler != want {
			t.Errorf("pod %s is listed as %v", p.config.Metadata.Name, list.Items)
		}
		stream, err := suite.cri.StreamPodSandboxes(t.Context(), &runtimeapi.StreamPodSandboxesRequest{Filter: filter})
		assert.NilError(t, err)
		some, err := stream.Recv()
		assert.NilError(t, err)
		if len(some.PodSandboxes) != 1 || some.PodSandboxes[0].RuntimeHandler != want {
			t.Errorf("pod %s is streamed as %v", p.config.Metadata.Name, some.PodSandboxes)
		}
	}
	status, err := suite.cri.Status(t.Context(), &runtimeapi.StatusRequest{})
	assert.NilError(t, err)
	names := map[string]int{}
	for _, h := range status.RuntimeHandlers {
		names[h.Name]++
	}
	if names["vm"] != 1 || names["runc"] != 1 {
		t.Errorf("handlers: %v", names)
	}
}
