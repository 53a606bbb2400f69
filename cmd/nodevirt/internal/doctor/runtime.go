package doctor

import (
	"context"
	"fmt"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/cli"
	"github.com/nodevirt/nodevirt/shim/config"
)

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
		return warn("install containerd 2 or later: older ones pull large images slowly", "%s", text)
	}
	return ok("%s", text)
}

// checkCNI asks containerd whether pods get a network.
func checkCNI(ctx context.Context, c config.Config) Finding {
	n, err := cli.Connect(c.Containerd.Address)
	if err != nil {
		return fail("set containerd.address in the shim's config", "%v", err)
	}
	defer n.Close()
	s, err := n.Pods.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return fail("start containerd, which tells of it", "%v", cli.Plain(err))
	}
	for _, condition := range s.GetStatus().GetConditions() {
		if condition.GetType() == runtimeapi.NetworkReady && !condition.GetStatus() {
			return fail("install the network of your cluster, or a config in /etc/cni/net.d with the plug-ins that it names",
				"%s: %s", condition.GetReason(), condition.GetMessage())
		}
	}
	return ok("containerd has a network for pods")
}

// checkShim asks for the shim, and whether it serves VMs.
func checkShim(ctx context.Context, c config.Config) Finding {
	const remedy = "start it: systemctl enable --now nodevirt-shim; its log tells what it waits for"
	n, err := cli.Connect(c.Listen)
	if err != nil {
		return fail("set listen in the shim's config", "%v", err)
	}
	defer n.Close()
	s, err := n.Pods.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return fail(remedy, "%s: %v", c.Listen, cli.Plain(err))
	}
	if !slices.ContainsFunc(s.GetRuntimeHandlers(), func(h *runtimeapi.RuntimeHandler) bool { return h.GetName() == c.Handler }) {
		return fail("let it be the shim that listens there, with this config",
			"%s answers, but has no runtime handler %q", c.Listen, c.Handler)
	}
	return ok("serves the runtime handler %q at %s", c.Handler, c.Listen)
}
