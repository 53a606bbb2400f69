// Package demo brings up a cluster and a virtual machine in it as a user of kubectl would, step by step,
// and prints what it does. It owns the steps; other packages own the cluster, the guest's disk and the
// images.
package demo

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/nodevirt/nodevirt/test/cluster"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/progress"
)

// The guest's disk has the name that the examples give theirs: nodes find every name in the cluster's
// own registry.
const (
	disk   = "debian-disk:12"
	client = "client"
)

type demo struct {
	cluster *cluster.Cluster
	out     io.Writer
	log     *progress.Log
	top     string // the checkout
}

type step struct {
	name, component string // whose log helps most if the step fails
	do              func(*demo, context.Context) error
}

func steps() []step {
	return []step{
		{"provide images", node.Registry, (*demo).push},
		{"install nodevirt", "kube-apiserver", (*demo).install},
		{"apply the manifests", "kube-apiserver", (*demo).apply},
		{"wait for the VM", node.Shim, (*demo).wait},
		{"ask the guest through its Service", node.Shim, (*demo).ask},
	}
}

// Run starts the cluster that o says, or uses it if it is up, runs a VM in it, and writes to out what it
// does. The cluster is left up. A failure's error names the step and ends with the tail of the log that
// helps most.
func Run(ctx context.Context, o cluster.Options, out io.Writer) error {
	d := &demo{out: out, log: progress.New(out)}
	o.Log = d.log
	bin, err := node.CheckoutBin()
	if err != nil {
		return err
	}
	d.top = filepath.Dir(bin)
	if d.cluster, err = cluster.Start(ctx, o); err != nil {
		return fmt.Errorf("bring up the cluster: %w", err)
	}
	for _, s := range steps() {
		if err := s.do(d, ctx); err != nil {
			return fmt.Errorf("%s: %w\n%s", s.name, err, d.cluster.LogTail(s.component, 25))
		}
	}
	d.next()
	return nil
}

func (d *demo) push(ctx context.Context) error {
	control := d.cluster.Control()
	path, err := guest.Tiny(ctx, control.GuestOptions())
	if err != nil {
		return err
	}
	img, err := images.RegistryDisk(path, images.DiskOptions{})
	if err != nil {
		return err
	}
	if _, err = d.cluster.Push(ctx, disk, img); err != nil {
		return err
	}
	if _, err = control.PushBusybox(ctx); err == nil {
		d.log.Line("a guest's disk and busybox are in the registry")
	}
	return err
}

func (d *demo) install(ctx context.Context) error {
	if err := d.cluster.Deploy(ctx); err != nil {
		return err
	}
	d.log.Line("kubectl apply --server-side -k deploy/: the controller is available")
	return nil
}

func (d *demo) apply(ctx context.Context) error {
	out, err := d.cluster.Kubectl(ctx, "apply", "--server-side", "-f", d.top+"/examples/vm.yaml")
	if err != nil {
		return err
	}
	d.log.Line("kubectl apply --server-side -f examples/vm.yaml")
	fmt.Fprint(d.log, out)
	return d.cluster.Apply(ctx, asker)
}

// asker is a pod from which the guest is asked.
const asker = `apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: shell, image: "127.0.0.1:5000/busybox:dev", command: [sleep, "1000000"]}
`

func (d *demo) wait(ctx context.Context) error {
	if err := d.cluster.WaitFor(ctx, "vmi/example", "jsonpath={.status.phase}=Running"); err != nil {
		return err
	}
	d.log.Line("vmi/example is Running")
	return d.cluster.WaitFor(ctx, "pod/"+client, "condition=Ready")
}

// ask fetches the guest's page from the other pod until it comes.
func (d *demo) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for {
		// Not wget -T: in Debian's busybox it crashes.
		page, err := d.cluster.Kubectl(ctx, "exec", client, "--", "timeout", "2", "wget", "-q", "-O", "-", "http://example/")
		if err == nil {
			line, _, _ := strings.Cut(strings.TrimSpace(page), "\n")
			d.log.Line("the guest answers at http://example/: %s", line)
			return nil
		}
		select {
		case <-ctx.Done():
			console, _ := d.cluster.Kubectl(context.WithoutCancel(ctx), "logs", "--tail=20", "--selector=app=example")
			return fmt.Errorf("no answer: %w\n--- the guest's console\n%s", err, console)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
