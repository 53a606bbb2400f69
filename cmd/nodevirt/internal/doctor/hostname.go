package doctor

import (
	"context"
	"os"
	"os/exec"
	"time"

	"github.com/nodevirt/nodevirt/shim/config"
)

// quickly is how long the C library may take to resolve the node's own name. It takes a few
// milliseconds from a local file, and five seconds or more if a name server is unreachable.
const quickly = time.Second

// checkHostname resolves the node's name with the C library, as libvirtd does when it starts and in
// some of its calls.
func checkHostname(ctx context.Context, _ config.Config) Finding {
	name, err := os.Hostname()
	if err != nil {
		return warn("set the node's name: hostnamectl hostname NAME", "%v", err)
	}
	return resolves(ctx, name)
}

// resolves accepts an unknown name, if the C library reports that in time.
func resolves(ctx context.Context, name string) Finding {
	ctx, cancel := context.WithTimeout(ctx, quickly)
	defer cancel()
	err := exec.CommandContext(ctx, "getent", "ahosts", name).Run()
	if ctx.Err() != nil {
		return warn("add the name to /etc/hosts", "resolving the node's own name %q takes longer than %s: libvirtd starts slowly", name, quickly)
	}
	if err != nil {
		return ok("the node's own name %q is unknown; the lookup is quick", name)
	}
	return ok("the node's own name %q resolves quickly", name)
}
