package bench

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/bench/report"
)

// There are so many containers while calls are measured, in so many pods.
const (
	containers     = 100
	containersPods = 4
)

// podsAtOnce are the ordinary pods of a burst.
const podsAtOnce = 10

// calls compares calls that the shim passes on with the same calls to containerd.
func (r *rig) calls(ctx context.Context) (s report.Section, err error) {
	one, err := r.fill(ctx)
	if err != nil {
		return s, err
	}
	s.Title = fmt.Sprintf("Calls that are passed on, with %d containers, against containerd", containers)
	for _, c := range []struct {
		name string
		do   func(context.Context, cri.RuntimeServiceClient) error
	}{
		{"Version", func(ctx context.Context, by cri.RuntimeServiceClient) error {
			_, err := by.Version(ctx, &cri.VersionRequest{})
			return err
		}},
		{"ListContainers", func(ctx context.Context, by cri.RuntimeServiceClient) error {
			list, err := by.ListContainers(ctx, &cri.ListContainersRequest{})
			if n := len(list.GetContainers()); err == nil && n != containers {
				return fmt.Errorf("%d containers are listed; want %d", n, containers)
			}
			return err
		}},
		{"ContainerStatus", func(ctx context.Context, by cri.RuntimeServiceClient) error {
			_, err := by.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: one})
			return err
		}},
	} {
		direct := side{of: "containerd", do: func(ctx context.Context) error { return c.do(ctx, r.containerd) }}
		through := side{of: "shim", do: func(ctx context.Context) error { return c.do(ctx, r.shim) }}
		times, err := turns(ctx, r.Calls, direct, through)
		if err != nil {
			return s, err
		}
		s.Rows = append(s.Rows, report.Row{Name: c.name, Unit: "ms", Kind: report.More, Goal: 0.3, Baseline: times[0], Measured: times[1]})
	}
	return s, nil
}

// fill creates the containers, and returns the id of one. They need not run to be listed.
func (r *rig) fill(ctx context.Context) (one string, err error) {
	image, err := r.busybox(ctx)
	if err != nil {
		return "", err
	}
	for i := range containersPods {
		p, err := r.runPod(ctx, r.containerd, fmt.Sprintf("calls-%d", i), "")
		if err != nil {
			return "", err
		}
		for j := range containers / containersPods {
			if one, err = p.create(ctx, fmt.Sprintf("container-%d", j), image, "sleep", "1000000"); err != nil {
				return "", err
			}
		}
	}
	return one, nil
}

// pod compares an ordinary pod's start through the shim with that through containerd.
func (r *rig) pod(ctx context.Context) (s report.Section, err error) {
	image, err := r.busybox(ctx)
	if err != nil {
		return s, err
	}
	// More rounds than VMs get: a pod's start varies by more than the goal.
	times, err := turns(ctx, 3*r.Rounds, r.podSide("containerd", r.containerd, image), r.podSide("shim", r.shim, image))
	if err != nil {
		return s, err
	}
	return report.Section{
		Title: "An ordinary pod's start, against containerd",
		Rows: []report.Row{{
			Name: "run pod, create, start", Unit: "ms", Kind: report.More, Goal: 3, Baseline: times[0], Measured: times[1],
		}},
	}, nil
}

func (r *rig) podSide(of string, by cri.RuntimeServiceClient, image string) side {
	var p *pod
	return side{
		of: of,
		do: func(ctx context.Context) (err error) {
			if p, err = r.runPod(ctx, by, "ordinary", ""); err != nil {
				return err
			}
			_, err = p.run(ctx, "sleeper", image, "sleep", "1000000")
			return err
		},
		tidy: func(ctx context.Context) error { return p.remove(ctx) },
	}
}

// pods compares a burst of ordinary pods through the shim with one through containerd.
func (r *rig) pods(ctx context.Context) (s report.Section, err error) {
	image, err := r.busybox(ctx)
	if err != nil {
		return s, err
	}
	times, err := turns(ctx, r.Rounds, r.podsSide("containerd", r.containerd, image), r.podsSide("shim", r.shim, image))
	if err != nil {
		return s, err
	}
	return report.Section{
		Title: fmt.Sprintf("%d ordinary pods at once, against containerd", podsAtOnce),
		Rows: []report.Row{{
			Name: "all run, and are seen to", Unit: "ms", Kind: report.Ratio, Goal: 1.05, Baseline: times[0], Measured: times[1],
		}},
	}, nil
}

// podsSide makes the calls that a kubelet makes for a new pod.
func (r *rig) podsSide(of string, by cri.RuntimeServiceClient, image string) side {
	var all [podsAtOnce]*pod
	start := func(ctx context.Context, i int) (err error) {
		if all[i], err = r.runPod(ctx, by, fmt.Sprintf("ordinary-%d", i), ""); err != nil {
			return err
		}
		if _, err := by.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: all[i].id}); err != nil {
			return fmt.Errorf("pod %s: %w", all[i].id, err)
		}
		id, err := all[i].run(ctx, "sleeper", image, "sleep", "1000000")
		if err != nil {
			return err
		}
		_, err = by.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id})
		return err
	}
	each := func(do func(ctx context.Context, i int) error) func(context.Context) error {
		return func(ctx context.Context) error {
			group, ctx := errgroup.WithContext(ctx)
			for i := range all {
				group.Go(func() error { return do(ctx, i) })
			}
			return group.Wait()
		}
	}
	return side{
		of:   of,
		do:   each(start),
		tidy: each(func(ctx context.Context, i int) error { return all[i].remove(ctx) }),
	}
}
