// Command nodevirt-controller makes pods of kubevirt.io's VirtualMachines and
// VirtualMachineInstances, whose nodes run nodevirt-shim.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nodevirt/nodevirt/cmd/internal/program"
	"github.com/nodevirt/nodevirt/controller"
	"github.com/nodevirt/nodevirt/controller/export/proxy"
	"github.com/nodevirt/nodevirt/controller/export/push"
	"github.com/nodevirt/nodevirt/controller/export/server"
)

// version is set at link time; without that it is the module's, from build info.
var version string

// garbage is how much of it there may be, in percent of what is in use, before it is collected. The
// controller mostly waits: memory is dearer than the time that this takes.
const garbage = 50

// memoryShare is the part of the cgroup's memory limit that Go may use before it collects garbage
// eagerly. The rest is for what Go does not count.
const memoryShare = 0.85

const usage = `nodevirt-controller makes pods of kubevirt.io's virtual machines.

Usage:
  nodevirt-controller [flags]

Flags:
`

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "nodevirt-controller:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("nodevirt-controller", flag.ContinueOnError)
	var (
		o          controller.Options
		level      slog.Level
		kubeconfig = flags.String("kubeconfig", "", "kubeconfig `file` (default: $KUBECONFIG, or else the pod's service account)")
	)
	flags.StringVar(&o.RuntimeClass, "runtime-class", "vm", "`name` of the RuntimeClass of VMs' pods")
	flags.StringVar(&o.StubImage, "stub-image", "",
		"`image` of VMs whose volumes have none, such as VMs that boot from the network; any image that nodes can pull "+
			"(default: the controller's own)")
	flags.StringVar(&o.AttachmentImage, "attachment-image", "",
		"`image` of the pods that mount volumes for VMs that run; its program must wait, as that of registry.k8s.io/pause does "+
			"(default: the controller's own)")
	hold := flags.Bool(strings.TrimPrefix(controller.HoldVolumes, "-"), false, "wait for a signal and do nothing else: attachment pods run this")
	flags.StringVar(&o.ExportImage, "export-image", "",
		"`image` of the pods that serve VirtualMachineExports, with nodevirt-controller as its program (default: the controller's own)")
	serve := flags.String(strings.TrimPrefix(server.Flag, "-"), "", "serve the VirtualMachineExport below a `folder` and do nothing else: exports' pods run this")
	pushes := flags.String(strings.TrimPrefix(push.Flag, "-"), "", "push the disk of the VirtualMachineExport below a `folder` and do nothing else: exports' pods run this")
	forward := flags.String(strings.TrimPrefix(proxy.Flag, "-"), "",
		"be the export proxy, with the certificate in a `folder`, and do nothing else: the pods of Deployment virt-exportproxy run this")
	flags.StringVar(&o.ExportProxyNamespace, "export-proxy-namespace", "",
		"`namespace` of the export proxy and its Ingresses, if there is one (default: the pod's own)")
	flags.BoolVar(&o.Flags.Gates.HostDisks, "host-disks", false,
		"let VMs have hostDisk volumes, as KubeVirt's feature gate HostDisk does; Pod Security must let their pods have hostPath volumes")
	flags.BoolVar(&o.Flags.Gates.DownwardMetrics, "downward-metrics", false,
		"let VMs have downwardMetrics, as KubeVirt's feature gate DownwardMetrics does, with the node's name, CPU time and memory")
	flags.BoolVar(&o.Flags.Gates.HookSidecars, "hook-sidecars", false,
		"let VMs have hook sidecars, as KubeVirt's feature gate Sidecar does: containers that change the VM before its start; "+
			"nodes need vm.hook_sidecars in the shim's config")
	flags.StringVar(&o.Flags.Gates.HookImage, "hook-sidecar-image", "",
		"`image` of hook sidecars that name none, such as KubeVirt's sidecar-shim (default: none)")
	flags.BoolVar(&o.NetworkDisks, "network-disks", false,
		"have QEMU open PVCs on iSCSI and RBD over the network, in place of the node's kernel; nodes need disks.network in the shim's config")
	flags.StringVar(&o.Flags.StateClass, "vm-state-storage-class", "",
		"`name` of the storage class for persistent firmware and TPMs of VMs (default: the cluster's default class)")
	flags.BoolVar(&o.Flags.StateShared, "vm-state-shared", false,
		"create the PVCs for persistent firmware and TPMs of VMs with access mode ReadWriteMany, so that migrations keep them")
	flags.StringVar(&o.GuestfsImage, "guestfs-image", "",
		"`image` of libguestfs-tools, such as KubeVirt's, for the pods of virtctl guestfs (default: none)")
	flags.StringVar(&o.MetricsAddress, "metrics-address", ":8080", "`address` to serve Prometheus' metrics on; 0 for none")
	flags.StringVar(&o.Tracing.Endpoint, "tracing-endpoint", "",
		"`HOST:PORT` of an OpenTelemetry collector's OTLP receiver for gRPC, for traces of VMs' creation (default: none)")
	flags.Float64Var(&o.Tracing.Ratio, "tracing-ratio", 1, "part of VMs that are traced, 0 to 1; use the same as in the shim's config")
	flags.BoolVar(&o.Tracing.Insecure, "tracing-insecure", false, "connect to the collector without TLS")
	flags.StringVar(&o.Tracing.CA, "tracing-ca", "", "`file` of certificates in PEM that the collector's is checked against (default: the system's)")
	flags.StringVar(&o.HealthAddress, "health-address", ":8081", "`address` to serve /healthz and /readyz on; 0 for none")
	flags.BoolVar(&o.LeaderElection, "leader-elect", true, "of several controllers let one work at a time")
	flags.StringVar(&o.LeaderElectionNamespace, "leader-election-namespace", "",
		"`namespace` of the Lease for that (default: the pod's own)")
	flags.StringVar(&o.APIAddress, "api-address", ":8443",
		"`address` to serve admission and subresources on, for the API server; 0 for none")
	flags.StringVar(&o.Namespace, "namespace", "",
		"`namespace` of the Service by which the API server connects, and of its certificate (default: the pod's own)")
	flags.TextVar(&level, "log-level", slog.LevelInfo, "debug, info, warn or error")
	o.Version = program.Version(version)
	o.Pod, _ = os.Hostname() // Kubernetes names it after the pod
	if done, err := program.Parse(flags, usage, o.Version, args); done || err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if *hold {
		<-ctx.Done()
		return nil
	}
	log := program.Log(level)
	if *serve != "" {
		return server.Run(ctx, *serve, log)
	}
	if *pushes != "" {
		return push.Run(ctx, *pushes, push.ResultFile, log)
	}
	config, err := clientConfig(*kubeconfig, o.Version)
	if err != nil {
		return err
	}
	log.Info("nodevirt-controller", "version", o.Version)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	// Without a limit of the cgroup this changes nothing; $GOMEMLIMIT wins.
	if _, err := memlimit.SetGoMemLimitWithOpts(memlimit.WithRatio(memoryShare)); err != nil {
		log.Debug("no memory limit set from the cgroup", "err", err)
	}
	if *forward != "" {
		return proxy.Run(ctx, config, *forward, o.HealthAddress, log)
	}
	return controller.Run(ctx, config, o, log)
}

func clientConfig(file, version string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = file
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		// The image is also that of VMs without one: a runtime that is not the shim starts this program.
		return nil, errors.New("find the API server: no kubeconfig and no service account; " +
			"set -kubeconfig, or, if this is the pod of a VM, run nodevirt-shim on its node")
	}
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	config.UserAgent = "nodevirt-controller/" + version
	return config, nil
}
