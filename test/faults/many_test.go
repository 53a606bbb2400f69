//go:build faults

package faults

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/node"
)

// perPod is how many ordinary containers a pod of TestMany has, perVM how many there are for each VM.
const perPod, perVM = 10, 50

// TestMany has many ordinary containers beside VMs. All are listed, measured and removed, and
// another VM starts.
func TestMany(t *testing.T) {
	r := begin(t)
	vms := make([]*round, max(2, *many/perVM))
	for i := range vms {
		vms[i] = r.beside(t, fmt.Sprintf("many-%d", i))
		vms[i].does(t, life[:started]...)
	}
	ordinary := make([]*pod, max(1, *many/perPod))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		inParallel(t, ordinary, func(p *pod) error { return p.removeOrdinary(ctx) })
	})
	for i := range ordinary {
		p, err := newPod(fmt.Sprintf("ordinary-%d", i), suite.RegistryAddress()+"/pause:dev", 0)
		assert.NilError(t, err)
		ordinary[i] = p
	}
	inParallel(t, ordinary, func(p *pod) error { return p.runOrdinary(t.Context(), perPod) })

	took := map[string]time.Duration{}
	timed := func(what string, do func(context.Context) error) {
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		begun := time.Now()
		if err := do(ctx); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		took[what] = time.Since(begun).Round(time.Millisecond)
	}
	timed("ListContainers", func(ctx context.Context) error {
		reply, err := suite.cri.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
		if want := len(ordinary)*perPod + len(vms) + len(suite.steady); err == nil && len(reply.Containers) != want {
			err = fmt.Errorf("%d containers are listed, not %d", len(reply.Containers), want)
		}
		return err
	})
	timed("ListPodSandbox", func(ctx context.Context) error {
		reply, err := suite.cri.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
		if want := len(ordinary) + len(vms) + len(suite.steady); err == nil && len(reply.Items) != want {
			err = fmt.Errorf("%d pods are listed, not %d", len(reply.Items), want)
		}
		return err
	})
	timed("ListContainerStats", func(ctx context.Context) error {
		reply, err := suite.cri.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{})
		if want := len(ordinary)*perPod + len(vms) + len(suite.steady); err == nil && len(reply.Stats) != want {
			err = fmt.Errorf("the statistics are of %d containers, not %d", len(reply.Stats), want)
		}
		return err
	})
	timed("ListPodSandboxStats", func(ctx context.Context) error {
		_, err := suite.cri.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{})
		return err
	})
	conn, err := node.DialCRI(suite.ContainerdSocket())
	assert.NilError(t, err)
	defer func() { _ = conn.Close() }()
	containerd := runtimeapi.NewRuntimeServiceClient(conn)
	timed("ListContainerStats of containerd alone", func(ctx context.Context) error {
		_, err := containerd.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{})
		return err
	})
	timed("ListPodSandboxStats of containerd alone", func(ctx context.Context) error {
		_, err := containerd.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{})
		return err
	})
	timed("ContainerStatus of each VM", func(ctx context.Context) error {
		for _, vm := range vms {
			if _, err := suite.cri.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: vm.container, Verbose: true}); err != nil {
				return err
			}
		}
		return nil
	})
	for _, vm := range vms {
		assert.NilError(t, vm.isTrue(t.Context()))
	}
	for _, c := range life[:started] {
		timed(c.name, func(ctx context.Context) error { return c.do(ctx, r.pod) })
	}
	assert.NilError(t, answers(t.Context()))
	t.Logf("%d ordinary containers beside %d VMs: %v", len(ordinary)*perPod, len(vms), took)
}

// runOrdinary makes an ordinary pod with so many containers.
func (p *pod) runOrdinary(ctx context.Context, containers int) error {
	p.config.Annotations = nil
	reply, err := suite.cri.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: p.config})
	if err != nil {
		return err
	}
	p.id = reply.PodSandboxId
	for i := range containers {
		p.guest.Metadata.Name, p.guest.LogPath = fmt.Sprintf("c%d", i), fmt.Sprintf("c%d_0.log", i)
		if err := life[1].do(ctx, p); err != nil {
			return err
		}
		if err := life[2].do(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// removeOrdinary removes such a pod, as far as it was made.
func (p *pod) removeOrdinary(ctx context.Context) error {
	if p == nil || p.id == "" {
		return nil
	}
	for _, c := range life[podEnd:] {
		if err := c.do(ctx, p); err != nil {
			return err
		}
	}
	return removeCgroups(ctx, p.config.Linux.CgroupParent, "")
}

// inParallel does something with each pod, with a few at once.
func inParallel(t *testing.T, pods []*pod, do func(*pod) error) {
	t.Helper()
	next := make(chan *pod)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for p := range next {
				if err := do(p); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, p := range pods {
		next <- p
	}
	close(next)
	all.Wait()
}
