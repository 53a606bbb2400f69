package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nodevirt/nodevirt/test/cluster"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
)

// namespace holds all objects that are measured, and so identifies their
// requests.
const namespace = "bench"

// rig is the cluster, with a client and what the watches saw.
type rig struct {
	*cluster.Cluster
	client        dynamic.Interface
	seen          *watcher
	disk, busybox string
	log           io.Writer
}

// newRig brings up a cluster with nodevirt in a new folder; stop ends it.
func newRig(ctx context.Context, log io.Writer) (r *rig, stop func() error, err error) {
	dir, err := os.MkdirTemp("", "nodevirt-")
	if err != nil {
		return nil, nil, err
	}
	if err := os.Chmod(dir, 0o711); err != nil { // QEMU's uid looks into it
		return nil, nil, err
	}
	r = &rig{seen: newWatcher(), log: log}
	stop = func() error {
		if r.Cluster == nil {
			return os.RemoveAll(dir)
		}
		return r.Stop(context.WithoutCancel(ctx))
	}
	if r.Cluster, err = cluster.Start(ctx, cluster.Options{Dir: dir, Bound: true}); err == nil {
		err = r.prepare(ctx)
	}
	if err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return r, stop, nil
}

// look is what there is in the cluster, for a failure's error.
func (r *rig) look(ctx context.Context) string {
	ctx = context.WithoutCancel(ctx)
	objects, _ := r.Kubectl(ctx, "get", "vmi,pods", "-o", "wide", "--namespace="+namespace)
	events, _ := r.Kubectl(ctx, "get", "events", "--field-selector=type!=Normal", "--namespace="+namespace)
	consoles, _ := r.Kubectl(ctx, "logs", "--selector=kubevirt.io=virt-launcher", "--tail=40", "--prefix", "--namespace="+namespace)
	return objects + events + consoles + r.LogTail("shim", 30)
}

// spare keeps everything off the second node, or lets it in: figures are those of one node.
func (r *rig) spare(ctx context.Context, keep bool) error {
	verb := "uncordon"
	if keep {
		verb = "cordon"
	}
	_, err := r.Kubectl(ctx, verb, "node-2")
	return err
}

func (r *rig) prepare(ctx context.Context) error {
	path, err := guest.Tiny(ctx, r.Control().GuestOptions())
	if err != nil {
		return err
	}
	img, err := images.RegistryDisk(path, images.DiskOptions{})
	if err != nil {
		return err
	}
	if r.disk, err = r.Push(ctx, "tiny:1", img); err != nil {
		return err
	}
	if r.busybox, err = r.Control().PushBusybox(ctx); err != nil {
		return err
	}
	if err := r.spare(ctx, true); err != nil {
		return err
	}
	if err := r.Deploy(ctx); err != nil {
		return err
	}
	if _, err := r.Kubectl(ctx, "create", "namespace", namespace); err != nil {
		return err
	}
	if err := r.WaitFor(ctx, "serviceaccount/default", "jsonpath={.metadata.uid}", "--namespace="+namespace); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", r.Kubeconfig())
	if err != nil {
		return fmt.Errorf("reach the API server: %w", err)
	}
	config.QPS, config.Burst = 1000, 1000
	if r.client, err = dynamic.NewForConfig(config); err != nil {
		return fmt.Errorf("reach the API server: %w", err)
	}
	return errors.Join(r.seen.follow(ctx, r.client, pods), r.seen.follow(ctx, r.client, vmis))
}
