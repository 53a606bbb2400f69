package demo

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/google/uuid"

	"github.com/nodevirt/nodevirt/test/node"
)

// pod is a pod with one container, by their ids.
type pod struct{ id, container string }

// The VM is so big, and its pod has so much beside it for QEMU, which under emulation keeps
// translated code too.
const (
	memory   = 128 << 20
	overhead = 256 << 20
)

const userData = `#!/bin/sh
echo "hello from the user data of the pod's annotation"
`

func (d *demo) runVM(ctx context.Context) (err error) {
	p := d.pod("hello")
	p["annotations"] = map[string]string{"nodevirt.io/cloud-init-user-data": userData}
	linux := p["linux"].(map[string]any)
	linux["overhead"] = map[string]any{"memory_limit_in_bytes": overhead}
	linux["resources"] = map[string]any{"memory_limit_in_bytes": memory + overhead}
	c := node.NewContainer("guest", d.diskImage)
	c["linux"] = map[string]any{"resources": map[string]any{
		"memory_limit_in_bytes": memory, "cpu_period": 100_000, "cpu_quota": 100_000,
	}}
	if d.vm, err = d.ensure(ctx, p, "vm", "hello", "guest", c); err != nil {
		return err
	}
	d.address, err = d.node.Output(ctx, "crictl", "inspectp", "--output", "go-template",
		"--template", "{{.status.network.ip}}", d.vm.id)
	d.address = strings.TrimSpace(d.address)
	if err == nil && d.address == "" {
		err = fmt.Errorf("pod %s has no IP", d.vm.id)
	}
	return err
}

func (d *demo) runClient(ctx context.Context) (err error) {
	c := node.NewContainer("shell", d.busyboxImage, "sleep", "1000000")
	d.client, err = d.ensure(ctx, d.pod("client"), "", "client", "shell", c)
	return err
}

// pod has the same UID each time, so that a pod of an earlier run is found by its cgroup too.
func (d *demo) pod(name string) node.Pod {
	return d.node.NewPodOf(name, uuid.NewSHA1(uuid.NameSpaceDNS, []byte(name+".demo.nodevirt.io")).String())
}

// ensure finds a running pod of an earlier run, or removes what is left of it and runs it again.
func (d *demo) ensure(ctx context.Context, p node.Pod, handler, name, container string, c node.Container) (pod, error) {
	old, err := d.ids(ctx, "pods", "--name", "^"+name+"$")
	if err != nil {
		return pod{}, err
	}
	for _, id := range old {
		running, err := d.ids(ctx, "ps", "--pod", id, "--name", "^"+container+"$")
		if err != nil {
			return pod{}, err
		}
		if len(running) == 1 {
			d.log.Line("pod %s runs already", name)
			return pod{id, running[0]}, nil
		}
		if err := d.node.RemovePod(ctx, id, p); err != nil {
			return pod{}, err
		}
		d.log.Line("pod %s of an earlier run is removed", name)
	}
	return d.run(ctx, p, handler, name, c)
}

func (d *demo) run(ctx context.Context, p node.Pod, handler, name string, c node.Container) (r pod, err error) {
	if err := os.RemoveAll(p["log_directory"].(string)); err != nil { // what an earlier run's guest said
		return r, err
	}
	if r.id, err = d.node.RunPod(ctx, p, handler); err != nil {
		return r, err
	}
	d.log.Line("crictl runp %s: pod %s is %s", flag(handler), name, short(r.id))
	image := c["image"].(map[string]any)["image"].(string)
	if _, err = d.node.Output(ctx, "crictl", "pull", image); err != nil {
		return r, err
	}
	d.log.Line("crictl pull %s", image)
	if r.container, err = d.node.CreateContainer(ctx, r.id, p, c); err != nil {
		return r, err
	}
	d.log.Line("crictl create: container %s", short(r.container))
	if _, err = d.node.Output(ctx, "crictl", "start", r.container); err != nil {
		return r, err
	}
	d.log.Line("crictl start %s", short(r.container))
	return r, nil
}

// ids runs a crictl command that lists ids.
func (d *demo) ids(ctx context.Context, args ...string) ([]string, error) {
	out, err := d.node.Output(ctx, "crictl", append(args, "--quiet")...)
	return strings.Fields(out), err
}

func flag(handler string) string {
	if handler == "" {
		return "(the default runtime)"
	}
	return "--runtime " + handler
}

// short is an id as crictl's lists show it.
func short(id string) string { return id[:min(len(id), 13)] }
