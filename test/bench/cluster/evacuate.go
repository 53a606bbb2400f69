package cluster

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// evacuated is a VMI that migrates off a drained node.
var evacuated = subject{vmis, vmiRunning, vmiGone, func(r *rig, name string) object {
	o := movable.object(r, name)
	o["spec"].(object)["evictionStrategy"] = "LiveMigrate"
	return o
}}

// evacuate drains the first node with n VMIs, and measures until the drain has ended, and the longest
// time in which a guest did not answer.
func (r *rig) evacuate(ctx context.Context, n int) (wall, worst time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*limit)
	defer cancel()
	fmt.Fprintf(r.log, "a drain of %d guests at once\n", n)
	if err := r.spare(ctx, true); err != nil { // all begin on the first node
		return 0, 0, err
	}
	names := make([]string, n)
	each := func(do func(ctx context.Context, name string) error) error {
		group, ctx := errgroup.WithContext(ctx)
		for _, name := range names {
			group.Go(func() error { return do(ctx, name) })
		}
		return group.Wait()
	}
	for i := range names {
		names[i] = fmt.Sprintf("evacuated-%d", i)
	}
	err = each(func(ctx context.Context, name string) error {
		if _, err := r.create(ctx, evacuated, name); err != nil {
			return err
		}
		if _, err := r.answers(ctx, name); err != nil {
			return err
		}
		return r.WaitFor(ctx, "vmi/"+name, "condition=LiveMigratable=True", "--namespace="+namespace)
	})
	if err != nil {
		return 0, 0, err
	}
	if err := r.spare(ctx, false); err != nil {
		return 0, 0, err
	}
	silences := make([]func() (time.Duration, error), n)
	for i, name := range names {
		silences[i] = r.probe(ctx, name)
	}
	begun := time.Now()
	_, err = r.Kubectl(ctx, "drain", "node-1", "--pod-selector=kubevirt.io=virt-launcher", "--timeout="+limit.String())
	wall = time.Since(begun)
	for _, silence := range silences {
		one, probeErr := silence()
		if err == nil {
			err = probeErr
		}
		worst = max(worst, one)
	}
	if err != nil {
		return 0, 0, err
	}
	if _, err := r.Kubectl(ctx, "uncordon", "node-1"); err != nil {
		return 0, 0, err
	}
	return wall, worst, each(func(ctx context.Context, name string) error {
		if _, err := r.remove(ctx, evacuated, name); err != nil {
			return err
		}
		_, err := r.seen.wait(ctx, name, vmiGone)
		return err
	})
}
