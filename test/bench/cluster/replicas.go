package cluster

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodevirt/nodevirt/test/bench/report"
)

// sets are the kind of objects that keep replicas.
var sets = schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: "virtualmachineinstancereplicasets"}

// replicas scales a replica set from nothing to n guests, and back. It measures when the last instance was
// made, was running and answered, and when all were gone, each from the request to scale.
func (r *rig) replicas(ctx context.Context, n int) (report.Section, error) {
	section := report.Section{Title: "A replica set, scaled, until all are"}
	fmt.Fprintf(r.log, "a replica set of %d\n", n)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	const name = "replicas"
	labels := object{"app": name}
	set := object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet", "metadata": object{"name": name},
		"spec": object{
			"replicas": int64(0), "selector": object{"matchLabels": labels},
			"template": object{"metadata": object{"labels": labels}, "spec": vmi.object(r, name)["spec"]},
		},
	}
	of := r.client.Resource(sets).Namespace(namespace)
	if _, err := of.Create(ctx, &unstructured.Unstructured{Object: set}, metav1.CreateOptions{}); err != nil {
		return section, fmt.Errorf("create the replica set: %w", err)
	}
	begun := time.Now()
	row := func(what string) {
		section.Rows = append(section.Rows, report.Row{
			Name: what, Unit: "ms", Kind: report.Value,
			Measured: report.Series{Of: what, Samples: []float64{milliseconds(time.Since(begun))}},
		})
	}
	scale := func(n int) error {
		begun = time.Now()
		patch := fmt.Appendf(nil, `{"spec": {"replicas": %d}}`, n)
		if _, err := of.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "scale"); err != nil {
			return fmt.Errorf("scale the replica set to %d: %w", n, err)
		}
		return nil
	}
	if err := scale(n); err != nil {
		return section, err
	}
	names, err := r.made(ctx, name, n)
	if err != nil {
		return section, err
	}
	row(fmt.Sprintf("0 to %d: made", n))
	for _, step := range []struct {
		what string
		wait func(context.Context, string) (time.Time, error)
		to   int
	}{
		{"0 to %d: Running", func(ctx context.Context, name string) (time.Time, error) { return r.seen.wait(ctx, name, vmiRunning) }, n},
		{"0 to %d: answer", r.answers, n},
		{"%d to 0: gone", func(ctx context.Context, name string) (time.Time, error) { return r.seen.wait(ctx, name, vmiGone) }, 0},
	} {
		if step.to == 0 {
			if err := scale(0); err != nil {
				return section, err
			}
		}
		if err := each(ctx, names, step.wait); err != nil {
			return section, err
		}
		row(fmt.Sprintf(step.what, n))
	}
	if err := of.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return section, fmt.Errorf("delete the replica set: %w", err)
	}
	return section, nil
}

// made waits for so many instances with an application's label, and returns their names.
func (r *rig) made(ctx context.Context, app string, n int) ([]string, error) {
	for {
		list, err := r.client.Resource(vmis).Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
		if err != nil {
			return nil, fmt.Errorf("list replicas: %w", err)
		}
		if len(list.Items) >= n {
			names := make([]string, len(list.Items))
			for i := range list.Items {
				names[i] = list.Items[i].GetName()
			}
			return names, nil
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return nil, fmt.Errorf("%d of %d replicas are made: %w", len(list.Items), n, err)
		}
	}
}

// each waits for something of every name at once.
func each(ctx context.Context, names []string, wait func(context.Context, string) (time.Time, error)) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, name := range names {
		group.Go(func() error {
			_, err := wait(ctx, name)
			return err
		})
	}
	return group.Wait()
}
