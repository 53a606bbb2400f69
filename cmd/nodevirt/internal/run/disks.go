package run

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/cli"
	"github.com/nodevirt/nodevirt/shim/vminfo"
)

// look is the interval between two requests for the progress of a VM's disks.
const look = 200 * time.Millisecond

// create creates the VM's container, and shows progress while the shim expands its disks.
func (l *launch) create(ctx context.Context, r request) (id string, err error) {
	if cli.IsTerminal(l.errOut) {
		ctx, cancel := context.WithCancel(ctx)
		shown := make(chan struct{})
		go func() {
			defer close(shown)
			l.showDisks(ctx, r.name)
		}()
		defer func() { cancel(); <-shown }()
	}
	made, err := l.node.Pods.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: l.sandbox, Config: r.container, SandboxConfig: r.sandbox,
	})
	if err != nil {
		return "", fmt.Errorf("create VM %s: %w", r.name, said(ctx, err))
	}
	return made.GetContainerId(), nil
}

// showDisks shows a bar while disks are expanded, until ctx ends.
func (l *launch) showDisks(ctx context.Context, name string) {
	stop := cli.Spin(l.errOut, "create VM "+name)
	defer func() { stop() }()
	var bar *cli.Percent
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(look):
		}
		reply, err := l.node.Pods.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: l.sandbox, Verbose: true})
		if err != nil {
			continue // CreateContainer returns the cause
		}
		making, err := vminfo.ReadMaking(reply.GetInfo())
		if err != nil || making == nil || len(making.Disks) == 0 {
			continue
		}
		if bar == nil {
			stop()
			bar = cli.NewPercent(l.errOut, "expand the disks of VM "+name)
			stop = bar.Done
		}
		last := making.Disks[len(making.Disks)-1] // they are made in turn
		bar.Set(last.Disk, last.Done)
	}
}
