package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/cli"
	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/vms"
)

// launch is a VM that is being created and started.
type launch struct {
	node    *cli.Node
	options options
	errOut  io.Writer

	sandbox, container string // ids
}

// start pulls the image, creates the pod and starts the VM. If a step fails it
// removes what it has created.
func (l *launch) start(ctx context.Context, r request) (err error) {
	if err := l.check(ctx, &r); err != nil {
		return err
	}
	image, err := l.pull(ctx, r.image)
	if err != nil {
		return err
	}
	for _, d := range r.disks {
		if d.image == "" {
			continue
		}
		id, err := l.pull(ctx, d.image)
		if err != nil {
			return fmt.Errorf("disk %s: %w", d.Name, err)
		}
		r.container.Mounts = append(r.container.Mounts, d.mount(id))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.undo(ctx, r))
		}
	}()
	done := cli.Spin(l.errOut, "run the pod of VM "+r.name)
	defer func() { done() }()
	pod, err := l.node.Pods.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{
		Config: r.sandbox, RuntimeHandler: l.options.handler,
	})
	if err != nil {
		return fmt.Errorf("run the pod of VM %s: %w", r.name, said(ctx, err))
	}
	l.sandbox = pod.GetPodSandboxId()
	r.container.Image = &runtimeapi.ImageSpec{Image: image, UserSpecifiedImage: r.image}
	done()
	done = func() {}
	if l.container, err = l.create(ctx, r); err != nil {
		return err
	}
	done = cli.Spin(l.errOut, "start VM "+r.name)
	_, err = l.node.Pods.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: l.container})
	if err != nil {
		return fmt.Errorf("start VM %s: %w", r.name, said(ctx, err))
	}
	return nil
}

// check verifies that the socket is a shim's and that the name is free, and adapts
// the cgroup's name to the node's cgroup driver.
func (l *launch) check(ctx context.Context, r *request) error {
	state, err := l.node.Pods.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return fmt.Errorf("get the status of the shim: %w", cli.Plain(err))
	}
	has := slices.ContainsFunc(state.GetRuntimeHandlers(), func(h *runtimeapi.RuntimeHandler) bool {
		return h.GetName() == l.options.handler
	})
	if !has {
		return fmt.Errorf("the runtime at %s has no handler %q: name the shim's socket with --runtime-endpoint, "+
			"or its handler with --runtime-handler", l.options.endpoint, l.options.handler)
	}
	for _, c := range state.GetStatus().GetConditions() {
		required := c.GetType() == runtimeapi.RuntimeReady || c.GetType() == runtimeapi.NetworkReady
		if required && !c.GetStatus() {
			return fmt.Errorf("the runtime at %s is not ready: %s: %s: see \"nodevirt doctor\"",
				l.options.endpoint, c.GetReason(), c.GetMessage())
		}
	}
	all, err := vms.List(ctx, l.node)
	if err != nil {
		return err
	}
	for _, v := range all {
		if v.Name() == r.name && v.Namespace() == l.options.namespace {
			return fmt.Errorf("VM %s/%s exists already: remove it with \"nodevirt rm %s\", or choose another --name",
				v.Namespace(), v.Name(), v.Name())
		}
	}
	config, err := l.node.Pods.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
	if err == nil && config.GetLinux().GetCgroupDriver() == runtimeapi.CgroupDriver_SYSTEMD {
		r.sandbox.Linux.CgroupParent = slice(r.sandbox.GetLinux().GetCgroupParent())
	}
	return nil
}

// slice returns the systemd name of a cgroup's path, as the kubelet does:
// /nodevirt/podA-B is nodevirt-podA_B.slice.
func slice(group string) string {
	parts := strings.Split(strings.Trim(path.Clean(group), "/"), "/")
	for i, p := range parts {
		parts[i] = strings.ReplaceAll(p, "-", "_")
	}
	return strings.Join(parts, "-") + ".slice"
}

// undo removes what a failed start has created, even if ctx has ended.
func (l *launch) undo(ctx context.Context, r request) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	if err := l.findSandbox(ctx, r); err != nil || l.sandbox == "" {
		return errors.Join(err, vms.Sweep(ctx, r.sandbox))
	}
	return vms.Remove(ctx, l.node, l.sandbox, "", 0)
}

// findSandbox looks for a pod whose creation was interrupted: the pod may exist although
// the call failed.
func (l *launch) findSandbox(ctx context.Context, r request) error {
	if l.sandbox != "" {
		return nil
	}
	reply, err := l.node.Pods.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		LabelSelector: map[string]string{"io.kubernetes.pod.uid": r.sandbox.GetMetadata().GetUid()},
	}})
	if err != nil {
		return fmt.Errorf("look for the pod: %w", cli.Plain(err))
	}
	for _, p := range reply.GetItems() {
		l.sandbox = p.GetId()
	}
	return nil
}

// said returns a call's error, or that the user interrupted the command.
func said(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return cli.Plain(err)
}
