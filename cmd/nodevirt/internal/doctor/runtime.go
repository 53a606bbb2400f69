package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/cli"
	"github.com/nodevirt/nodevirt/shim/config"
	"github.com/nodevirt/nodevirt/shim/kubelet"
	"github.com/nodevirt/nodevirt/shim/nodeproblems"
)

// minContainerd is the oldest major version of containerd that the shim is tested with.
const minContainerd = 2

func checkContainerd(ctx context.Context, c config.Config) Finding {
	n, err := cli.Connect(c.Containerd.Address)
	if err != nil {
		return fail("set containerd.address in the shim's config", "%v", err)
	}
	defer n.Close()
	v, err := n.Pods.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		return fail("install containerd 2, with its CRI plug-in, and start it: systemctl enable --now containerd; "+
			"or set containerd.address in the shim's config", "%s: %v", c.Containerd.Address, cli.Plain(err))
	}
	text := fmt.Sprintf("%s %s at %s", v.GetRuntimeName(), v.GetRuntimeVersion(), c.Containerd.Address)
	if v.GetRuntimeName() == "containerd" && major(v.GetRuntimeVersion()) < minContainerd {
		return warn("install containerd 2 or later", "%s: nodevirt is not tested with versions before %d", text, minContainerd)
	}
	return ok("%s", text)
}

// containerdStatus asks containerd for its status. It returns nil and what is wrong, with a remedy, if containerd does not
// answer.
func containerdStatus(ctx context.Context, c config.Config, remedy string) (*runtimeapi.StatusResponse, Finding) {
	n, err := cli.Connect(c.Containerd.Address)
	if err != nil {
		return nil, fail("set containerd.address in the shim's config", "%v", err)
	}
	defer n.Close()
	s, err := n.Pods.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return nil, fail(remedy, "%v", cli.Plain(err))
	}
	return s, Finding{}
}

// checkCNI asks containerd whether the pod network is ready.
func checkCNI(ctx context.Context, c config.Config) Finding {
	s, problem := containerdStatus(ctx, c, "start containerd, which reports the state of the network: systemctl enable --now containerd")
	if s == nil {
		return problem
	}
	for _, condition := range s.GetStatus().GetConditions() {
		if condition.GetType() == runtimeapi.NetworkReady && !condition.GetStatus() {
			return fail("install your cluster's network add-on, or put a config into /etc/cni/net.d and its plug-ins into /opt/cni/bin",
				"%s: %s", condition.GetReason(), condition.GetMessage())
		}
	}
	return ok("containerd reports that the pod network is ready")
}

// checkSnapshotter asks containerd whether it has the snapshotter into which the shim unpacks images.
func checkSnapshotter(ctx context.Context, c config.Config) Finding {
	client, err := cli.DialContainerd(ctx, c.Containerd.Address)
	if err != nil {
		return fail("set containerd.address in the shim's config", "%v", err)
	}
	defer func() { _ = client.Close() }()
	answer, err := client.IntrospectionService().Plugins(ctx, "type==io.containerd.snapshotter.v1")
	if err != nil {
		return warn("see containerd's log", "%v", cli.Plain(err))
	}
	var names []string
	for _, p := range answer.GetPlugins() {
		if p.GetInitErr() == nil {
			names = append(names, p.GetID())
		}
	}
	return snapshotter(names, c.Containerd.Snapshotter)
}

// snapshotter judges the snapshotters that work.
func snapshotter(names []string, wanted string) Finding {
	if !slices.Contains(names, wanted) {
		slices.Sort(names)
		return fail("set containerd.snapshotter in the shim's config to one of them, that of containerd's CRI plug-in",
			"containerd has no snapshotter %q, but %s", wanted, strings.Join(names, ", "))
	}
	return ok("containerd has %s", wanted)
}

// checkSandboxHandler asks containerd whether it has the handler of VMs' sandboxes.
func checkSandboxHandler(ctx context.Context, c config.Config) Finding {
	s, problem := containerdStatus(ctx, c, "start containerd: systemctl enable --now containerd")
	if s == nil {
		return problem
	}
	return sandboxHandler(s.GetRuntimeHandlers(), c.Containerd.SandboxHandler)
}

// sandboxHandler judges containerd's handlers. Old versions report none.
func sandboxHandler(all []*runtimeapi.RuntimeHandler, wanted string) Finding {
	var names []string
	for _, h := range all {
		names = append(names, h.GetName())
	}
	if wanted != "" && len(names) > 0 && !slices.Contains(names, wanted) {
		slices.Sort(names)
		return fail("set containerd.sandbox_handler in the shim's config to one of them, or leave it empty for containerd's default",
			"containerd has no runtime handler %q, but %s", wanted, strings.Join(slices.DeleteFunc(names, func(n string) bool { return n == "" }), ", "))
	}
	if wanted == "" {
		return ok("containerd's default")
	}
	return ok("containerd has %s", wanted)
}

// checkKubeconfig asks the API server whose credential the shim has: a node's.
func checkKubeconfig(ctx context.Context, c config.Config) Finding {
	file := c.Kubernetes.Kubeconfig
	if file == "" {
		return ok("the shim has no API server: kubernetes.kubeconfig is empty in its config")
	}
	name, err := kubelet.New(file).NodeName(ctx)
	if err != nil {
		return warn("set kubernetes.kubeconfig in the shim's config to the kubelet's kubeconfig, which its --kubeconfig names", "%s: %v", file, err)
	}
	return ok("%s has the credential of node %s", file, name)
}

// checkShim asks the shim whether it serves the runtime handler of VMs.
func checkShim(ctx context.Context, c config.Config) Finding {
	const remedy = "start the shim: systemctl enable --now nodevirt-shim; if it does not answer, see its log: journalctl -u nodevirt-shim"
	n, err := cli.Connect(c.Listen)
	if err != nil {
		return fail("set listen in the shim's config", "%v", err)
	}
	defer n.Close()
	s, err := n.Pods.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		return fail(remedy, "%s: %v", c.Listen, cli.Plain(err))
	}
	if !slices.ContainsFunc(s.GetRuntimeHandlers(), func(h *runtimeapi.RuntimeHandler) bool { return h.GetName() == c.Handler }) {
		return fail("start nodevirt-shim with this config, or pass doctor the shim's config with --config",
			"%s answers, but has no runtime handler %q", c.Listen, c.Handler)
	}
	if found, has := lostPods(s.GetInfo()[nodeproblems.Info]); has {
		return found
	}
	return ok("serves the runtime handler %q at %s", c.Handler, c.Listen)
}

// lostPods returns the finding that the VMs' pods are lost, from the problems that the shim reports. Doctor finds the
// others by itself.
func lostPods(text string) (Finding, bool) {
	var problems []nodeproblems.Problem
	_ = json.Unmarshal([]byte(text), &problems) // a shim of an earlier version reports none
	for _, p := range problems {
		if p.Reason == nodeproblems.PodsLost {
			return Finding{Level: Lost, Detail: p.Message, Remedy: `see "containerd has lost its pods" in docs/node.md`}, true
		}
	}
	return Finding{}, false
}
