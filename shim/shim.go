// Package shim wires the parts of the node's CRI shim together and runs them: the
// CRI server (package cri), the VM containers (package vm) and their dependencies.
//
// It owns the sockets, the start and the end of the process. It leaves everything
// else to the parts.
package shim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/checkpoint/unpack"
	"github.com/nodevirt/nodevirt/shim/config"
	"github.com/nodevirt/nodevirt/shim/console"
	"github.com/nodevirt/nodevirt/shim/console/terminal"
	"github.com/nodevirt/nodevirt/shim/cri"
	"github.com/nodevirt/nodevirt/shim/disk"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/domain/accel"
	"github.com/nodevirt/nodevirt/shim/hooks"
	"github.com/nodevirt/nodevirt/shim/hostcpu"
	"github.com/nodevirt/nodevirt/shim/metrics"
	"github.com/nodevirt/nodevirt/shim/nodelabels"
	"github.com/nodevirt/nodevirt/shim/nodeproblems"
	"github.com/nodevirt/nodevirt/shim/podstatus"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/share"
	"github.com/nodevirt/nodevirt/shim/shutdown"
	"github.com/nodevirt/nodevirt/shim/stream"
	"github.com/nodevirt/nodevirt/shim/tpm"
	"github.com/nodevirt/nodevirt/shim/virtiofs"
	"github.com/nodevirt/nodevirt/shim/vm"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/tracing"
)

// Run serves CRI until ctx ends. The version is the program's. VMs continue to run when it returns; the next Run
// with the same config finds them. Run waits for containerd, and notifies systemd when it is ready.
func Run(ctx context.Context, c config.Config, version string, log *slog.Logger) error {
	unlockFolders, err := lockFolders(c)
	if err != nil {
		return err
	}
	defer unlockFolders()
	if err := makeFolders(c); err != nil {
		return err
	}
	listener, unlock, err := listen(ctx, c.Listen)
	if err != nil {
		return fmt.Errorf("serve CRI: %w", err)
	}
	defer unlock()
	defer listener.Close()
	scrapes, unlockScrapes, err := listenForScrapes(ctx, c.Metrics.Address)
	if err != nil {
		return err
	}
	defer unlockScrapes()
	measures := metrics.New()
	traces, err := newTracing(ctx, c, version, log)
	if err != nil {
		return err
	}
	defer closeTracing(ctx, traces, log)
	backend, err := cri.Dial(c.Containerd.Address, traces.DialOptions()...)
	if err != nil {
		return fmt.Errorf("connect to containerd: %w", err)
	}
	defer func() { _ = backend.Close() }()
	client, err := containerd.New(c.Containerd.Address, containerd.WithDefaultNamespace(c.Containerd.Namespace),
		containerd.WithExtraDialOpts(append(traces.DialOptions(), cri.Retry())))
	if err != nil {
		return fmt.Errorf("connect to containerd: %w", err)
	}
	defer func() { _ = client.Close() }()
	kubelet := nodelabels.NewKubelet(c.Listen)
	problems := &nodeproblems.Problems{}
	measures.CollectProblems(problems.All)
	vms, disks, labels, err := newVMs(ctx, c, log, backend, client, kubelet, problems, measures, traces)
	if err != nil {
		return err
	}
	name, err := os.Hostname()
	if err != nil {
		return errors.Join(err, vms.Close())
	}
	measures.Collect(vms.Node, name)
	streams, err := stream.Listen(ctx, stream.Options{
		Address: c.Stream.Address, IdleTimeout: time.Duration(c.Stream.IdleTimeout), Machines: vms.Guests, Logger: log,
	})
	if err != nil {
		return errors.Join(err, vms.Close())
	}
	front := cri.New(cri.Options{ //nolint:contextcheck // each call uses its client's context
		Backend: backend, Streams: streams,
		Sandboxes: vms.Sandboxes, Containers: vms.Lifecycle, Reports: vms.Reports, Guests: vms.Guests, Events: vms.Events, Checkpoints: vms.Saves,
		Handler: c.Handler, SandboxHandler: c.Containerd.SandboxHandler, Logger: log, Heard: kubelet.Hear, Problems: problems.All, Metrics: measures, Tracing: traces,
	})
	server := front.GRPC()

	group, ctx := errgroup.WithContext(ctx)
	// VMs are watched until the last call has ended.
	watching, endWatching := context.WithCancel(context.WithoutCancel(ctx))
	defer endWatching()
	group.Go(func() error { return vms.Run(watching) })
	group.Go(func() error { labels.Run(ctx); return nil })
	group.Go(func() error { nodelabels.Name(ctx, c.Kubernetes.Kubeconfig, log, measures.SetNode); return nil })
	group.Go(func() error {
		nodelabels.NewCondition(c.Kubernetes.Kubeconfig, problems.All, log).Run(ctx)
		return nil
	})
	group.Go(func() error { watchRoom(ctx, c.Libvirt.Run, problems, log); return nil })
	group.Go(func() error { return serve(server, listener) })
	group.Go(streams.Serve)
	group.Go(func() error {
		return share.Serve(ctx, filepath.Join(c.Run, "disks.sock"), share.Handler(disks.Exports, disks.Imports))
	})
	if scrapes != nil {
		group.Go(func() error { return metrics.Serve(ctx, scrapes, measures.Handler(log)) })
	}
	group.Go(func() error {
		<-ctx.Done()
		_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
		front.End()
		err := streams.Close()
		stop(server)
		endWatching()
		return err
	})
	log.Info("serving CRI", "socket", c.Listen, "handler", c.Handler, "streams", streams.Address())
	if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
		log.Warn("cannot notify systemd", "error", err)
	}
	return errors.Join(group.Wait(), vms.Close())
}

// newVMs creates the parts of package vm and their dependencies.
func newVMs(ctx context.Context, c config.Config, log *slog.Logger, backend *grpc.ClientConn, client *containerd.Client, kubelet *nodelabels.Kubelet, problems *nodeproblems.Problems, measures *metrics.Metrics, traces *tracing.Tracing) (*vm.VMs, *disk.Disks, *nodelabels.Writer, error) {
	converter, err := newConverter(c)
	if err != nil {
		return nil, nil, nil, err
	}
	dnsmasq, err := exec.LookPath(c.Tools.Dnsmasq)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("tools.dnsmasq: %w; install dnsmasq-base", err)
	}
	accelerator, why, err := accel.Resolve(ctx, c.VM.Accelerator, c.VM.Emulator)
	if err != nil {
		return nil, nil, nil, err
	}
	nodeCPUs, err := hostcpu.Read("/sys/devices/system")
	if err != nil {
		return nil, nil, nil, err
	}
	nodeCPU, err := hostcpu.Identify("/proc/cpuinfo")
	if err != nil {
		return nil, nil, nil, err
	}
	log.Info("accelerator", "setting", c.VM.Accelerator, "used", accelerator, "why", why)
	emulator, err := emulatorOf(c, c.VM.Emulator, log)
	if err != nil {
		return nil, nil, nil, err
	}
	foreign, err := foreignEmulators(c, log)
	if err != nil {
		return nil, nil, nil, err
	}
	records, err := record.Open(c.Root)
	if err != nil {
		return nil, nil, nil, err
	}
	consoles, err := console.New(int64(c.VM.LogLimit), log)
	if err != nil {
		return nil, nil, nil, err
	}
	images := runtimeapi.NewImageServiceClient(cri.Native(backend))
	imageFS, err := waitForContainerd(ctx, c, images, log)
	if err != nil {
		return nil, nil, nil, err
	}
	driver := domain.NewDriver(c.Libvirt.URI, c.Libvirt.Run, log)
	unpacker := imageunpack.New(client, imageunpack.Options{
		Namespace:   c.Containerd.Namespace,
		Snapshotter: c.Containerd.Snapshotter,
		MountDir:    filepath.Join(c.Run, "mounts"),
		MaxDiskSize: int64(c.VM.MaxDiskSize),

		Architectures: slices.Sorted(maps.Keys(foreign)),
	})
	expander, err := expand.New(expand.Options{
		Tool:    converter,
		Dir:     filepath.Join(c.Root, "expanded"),
		Limit:   int64(c.Disks.CacheLimit),
		Reserve: int64(c.Disks.Reserve),
		Logger:  log,
	})
	if err != nil {
		return nil, nil, nil, err
	}
	sidecars := hooks.New(hooks.Options{Enabled: c.VM.HookSidecars, Limits: hooks.DefaultLimits(), Logger: log})
	disks, err := newDisks(c, converter, log, unpacker, expander, records, driver.Secrets, sidecars)
	if err != nil {
		return nil, nil, nil, err
	}
	tpms, err := tpm.New(c.Tools.Swtpm, filepath.Join(c.Run, "tpms"))
	if err != nil {
		return nil, nil, nil, err
	}
	filesystems, err := virtiofs.New(filepath.Join(c.Run, "files"), []string{converter.Stage[0], "share"}, virtiofs.Programs())
	if err != nil {
		return nil, nil, nil, err
	}
	shared, err := newForks(c, emulator)
	if err != nil {
		return nil, nil, nil, err
	}
	vms, err := vm.New(ctx, vm.Options{
		Records:        records,
		Pods:           runtimeapi.NewRuntimeServiceClient(cri.Native(backend)),
		Unfinished:     client.SandboxStore(),
		Images:         images,
		Unpacker:       unpacker,
		Disks:          disks,
		Expander:       expander,
		Checkpoints:    unpack.Unpacker{Tool: converter, Program: converter.Stage[0]},
		CreateTimeout:  time.Duration(c.Disks.GiveUp),
		DiskMode:       vmspec.Mode(c.Disks.Mode),
		Network:        netsetup.New(netsetup.Options{Dnsmasq: dnsmasq, Dir: filepath.Join(c.Run, "networks"), PodNetworkMAC: c.VM.PodNetworkMAC, Logger: log}),
		TPMs:           tpms,
		Hooks:          sidecars,
		Filesystems:    filesystems,
		Consoles:       consoles,
		Terminals:      terminal.New(log),
		Driver:         driver,
		Forks:          shared,
		PodStatus:      podstatus.New(c.Kubernetes.Kubeconfig, log),
		Problems:       problems,
		PodLookup:      podstatus.NewLookup(c.Kubernetes.Kubeconfig),
		Node:           nodelabels.NewConditions(c.Kubernetes.Kubeconfig),
		Metrics:        measures,
		Tracing:        traces,
		Logger:         log,
		NodeStops:      shutdown.New(log).Underway,
		NodeBooted:     shutdown.Booted,
		NodeBootID:     shutdown.BootID,
		RuntimeHandler: c.Handler,
		NodeCPUs:       nodeCPUs,
		NodeCPU:        nodeCPU,
		Accelerator:    accelerator,
		Emulator:       emulator,

		ForeignEmulators: foreign,

		DomainLogs:     c.Libvirt.Log,
		ConsoleDir:     filepath.Join(c.Run, "consoles"),
		AgentDir:       filepath.Join(c.Run, "agents"),
		DisplayDir:     filepath.Join(c.Run, "displays"),
		MigrationDir:   filepath.Join(c.Run, "migrations"),
		Libvirtd:       libvirtSocket(c.Libvirt),
		OverheadMemory: int64(c.VM.OverheadMemory),
		UIDBase:        c.VM.UIDBase,
		UIDCount:       c.VM.UIDCount,
		ImageFS:        imageFS,
		ResolvConf:     c.VM.ResolvConf,
		RunFolders: func() error {
			return errors.Join(makeFolders(c), relink(c, emulator, foreign, log))
		},
	})
	labels := nodelabels.New(c.Kubernetes.Kubeconfig, kubelet.Source(func(ctx context.Context) (domain.Capabilities, error) {
		if err := driver.Connection.Connected(ctx); err != nil {
			return domain.Capabilities{}, errors.Join(err, domain.CheckRoom(c.Libvirt.Run)) // which may be why
		}
		can, err := driver.Host.Capabilities(ctx, accelerator, emulator, slices.Sorted(maps.Keys(foreign)))
		if err == nil {
			measures.DeprecatedMachines(can.Deprecated)
		}
		return can, err
	}), log)
	return vms, disks, labels, err
}

// libvirtSocket returns the path of libvirtd's socket: that of the URI, or the usual one.
func libvirtSocket(c config.Libvirt) string {
	if u, err := url.Parse(c.URI); err == nil && u.Query().Get("socket") != "" {
		return u.Query().Get("socket")
	}
	return filepath.Join(c.Run, "libvirt-sock")
}

// waitForContainerd waits until containerd's CRI answers, and returns the mount
// point of its image file system.
func waitForContainerd(ctx context.Context, c config.Config, images runtimeapi.ImageServiceClient, log *slog.Logger) (string, error) {
	for logged := false; ; logged = true {
		reply, err := images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
		if err == nil && len(reply.GetImageFilesystems()) > 0 {
			return reply.GetImageFilesystems()[0].GetFsId().GetMountpoint(), nil
		}
		if !logged {
			log.Warn("waiting for containerd", "socket", c.Containerd.Address, "error", err)
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("wait for containerd at %s: %w", c.Containerd.Address, ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// makeFolders creates the folders below the run folder. A reboot empties it, and an administrator or a
// program that cleans up may do so while the shim runs.
func makeFolders(c config.Config) error {
	for _, dir := range []struct { // parents first, each with its own mode
		path string
		mode os.FileMode
	}{
		{filepath.Dir(c.Listen), 0o755},
		{c.Run, 0o755},
		{filepath.Join(c.Run, "mounts"), 0o700},
		{filepath.Join(c.Run, "networks"), 0o755},
		{filepath.Join(c.Run, "tpms"), 0o711},
		{filepath.Join(c.Run, "files"), 0o711},
		{filepath.Join(c.Run, "convert"), 0o700},
		{filepath.Join(c.Run, "views"), 0o700},
	} {
		if err := os.MkdirAll(dir.path, dir.mode); err != nil {
			return fmt.Errorf("create the run folder: %w", err)
		}
	}
	return nil
}

// stopTime bounds how long calls may take after the shim is asked to end.
const stopTime = 10 * time.Second

func stop(server *grpc.Server) {
	t := time.AfterFunc(stopTime, server.Stop)
	defer t.Stop()
	server.GracefulStop()
}

func serve(server *grpc.Server, l net.Listener) error {
	err := server.Serve(l)
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil // stopped before Serve was called
	}
	return err
}
