package doctor

import (
	"context"
	"os"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/nodesetup/layout"
	"github.com/nodevirt/nodevirt/shim/config"
)

// checkKubelet compares the kubelet's CRI socket with the shim's.
func checkKubelet(_ context.Context, c config.Config) Finding {
	root, err := os.OpenRoot("/")
	if err != nil {
		return warn("run doctor as root", "%v", err)
	}
	defer func() { _ = root.Close() }()
	return kubeletSocket(root, c)
}

func kubeletSocket(root *os.Root, c config.Config) Finding {
	if c.Kubernetes.Kubeconfig == "" {
		return ok("the shim has no kubelet: kubernetes.kubeconfig is empty in its config")
	}
	l, err := layout.Detect(root)
	if err != nil {
		return ok("how the kubelet is set up is not known: make sure that it uses %s", c.Listen)
	}
	socket, err := l.Runtime(root)
	if err != nil {
		return warn("make sure that the kubelet uses "+c.Listen, "%v", err)
	}
	if socket != layout.CleanSocket(c.Listen) {
		return fail("set the kubelet's --container-runtime-endpoint to unix://"+c.Listen+" again, and restart "+l.Unit+
			"; the kubelet has ended the VMs that ran",
			"the kubelet (%s) uses %s, not the shim's socket %s: VMs' pods do not start", l.Name, socket, c.Listen)
	}
	return ok("the kubelet (%s) uses %s", l.Name, c.Listen)
}
